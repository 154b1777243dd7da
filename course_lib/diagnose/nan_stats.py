"""Mean, median and quantile that skip missing figures, and are NaN where all are missing."""

import warnings
from collections.abc import Callable

import numpy as np

from course_lib.diagnose.cluster_series import Array


def _quiet(function: Callable[[], Array]) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "mean of empty slice": NaN is what is wanted
        return np.asarray(function(), dtype=float)


def mean(values: Array, axis: int) -> Array:
    """Mean along ``axis``."""
    return _quiet(lambda: np.nanmean(values, axis=axis))


def median(values: Array, axis: int) -> Array:
    """Median along ``axis``."""
    return _quiet(lambda: np.nanmedian(values, axis=axis))


def quantile(values: Array, share: float) -> Array:
    """Quantile of each column, 0 to 1."""
    return _quiet(lambda: np.nanquantile(values, share, axis=0))
