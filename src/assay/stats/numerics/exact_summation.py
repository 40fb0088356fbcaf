"""Sums with the same result on every Python version.

Since 3.12 the built-in `sum` compensates rounding errors, which changes the last digit. Published results were summed
from left to right with one rounding per step; these functions do the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Floats",
    "compute_mean_error",
    "compute_sample_deviation",
    "mean",
    "sum_left_to_right",
    "sum_rows",
    "to_float_array",
]

Floats = NDArray[np.float64]

_INTEGER_TYPES = frozenset({int, bool})
_NUMBER_TYPES = frozenset({int, bool, float, np.float64})


def to_float_array(values: Sequence[Any]) -> Floats | None:
    """Return the values as a float array; None if one of them is not a plain number."""
    if not _NUMBER_TYPES.issuperset(map(type, values)):
        return None
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # an integer too large for a float
        return None


def sum_left_to_right(values: Sequence[Any]) -> Any:
    """Return the sum from left to right with one rounding per step, as `sum` did up to Python 3.11.

    >>> sum_left_to_right([0.1] * 10)
    0.9999999999999999
    >>> sum_left_to_right([True, 2])
    3
    """
    if _INTEGER_TYPES.issuperset(map(type, values)):
        return sum(values)
    numbers = to_float_array(values)
    if numbers is not None:
        with np.errstate(over="ignore"):  # as `sum`, which returns inf
            return (
                float(np.add.accumulate(numbers)[-1]) + 0.0
            )  # `sum` starts from 0, which turns -0.0 into 0.0
    total: Any = 0
    for value in values:
        total = total + value
    return total


def sum_rows(table: Floats) -> Floats:
    """Return `sum_left_to_right` of every row of a table.

    Columns are added for all rows at once, which is three times as fast as cumulative sums and gives the same bits. For few
    rows NumPy would sum pairwise, so they use cumulative sums.
    """
    if len(table) < 8:
        sums: Floats = np.add.accumulate(table, axis=1)[:, -1]
    else:
        sums = np.add.reduce(np.ascontiguousarray(table.T), axis=0)
    sums += 0.0  # `sum` starts from 0, which turns -0.0 into 0.0
    return sums


def mean(values: Sequence[Any]) -> Any:
    """Return the arithmetic mean.

    >>> mean([1, 0, 1, 1])
    0.75
    """
    return sum_left_to_right(values) / len(values)


def compute_sample_deviation(values: Sequence[Any]) -> float:
    """Return the sample standard deviation (n - 1 in the denominator).

    `** 2` calls `pow` of the C library, which can differ from `x * x` in the last bit, so NumPy is not used.
    """
    middle = mean(values)
    return math.sqrt(sum_left_to_right([(value - middle) ** 2 for value in values]) / (len(values) - 1))


def compute_mean_error(values: Sequence[Any]) -> float:
    """Return the standard error of the mean of independent values.

    >>> compute_mean_error([0.0, 1.0])
    0.5
    """
    return compute_sample_deviation(values) / math.sqrt(len(values))
