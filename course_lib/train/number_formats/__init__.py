"""What can a number format hold, how fast is it here, and what happens to a real step in it?

- ``float_formats``, ``exponents``: how large, how small, how fine; sizes of numbers against that
- ``dtype_inspector``, ``value_ranges``, ``scaler_life``: types, sizes and scales of a real step
- ``format_speed``, ``format_times``, ``published_speedups``: what a format is worth
- ``float32_products``: how a card multiplies float32

Which format a training uses is chosen in ``train/precision.py``.
"""
