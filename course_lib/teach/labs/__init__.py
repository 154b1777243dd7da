"""Labs: sliders and buttons over plain functions, one module a lesson."""
