"""Labs: one module a lesson, named by the lesson's topic word, each with a function ``lab()``.

``lab()`` returns a ``Lab`` or a ``MeasuringLab`` (frame.py): sliders over a plain function of its module,
which the lesson also calls once without them. tests/labs finds every module here that has a ``lab``.
"""
