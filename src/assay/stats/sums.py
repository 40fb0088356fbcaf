"""Sums that come out the same on every Python version.

Since 3.12 the builtin `sum` compensates rounding errors, so the same scores add up to another last digit.
Published results were added from left to right, one rounding per step; so are these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "left_sum", "mean", "mean_error", "plain_floats", "row_sums", "sample_deviation"]

Floats = NDArray[np.float64]

_WHOLE = frozenset({int, bool})
_PLAIN = frozenset({int, bool, float, np.float64})


def plain_floats(values: Sequence[Any]) -> Floats | None:
    """The values as an array, or None when one of them is not an ordinary number."""
    if not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # an integer no float can hold
        return None


def left_sum(values: Sequence[Any]) -> Any:
    """The sum from left to right, each step rounded: what `sum` gave up to Python 3.11.

    >>> left_sum([0.1] * 10)
    0.9999999999999999
    >>> left_sum([True, 2])
    3
    """
    if _WHOLE.issuperset(map(type, values)):
        return sum(values)
    numbers = plain_floats(values)
    if numbers is not None:
        return float(np.add.accumulate(numbers)[-1]) + 0.0  # the zero `sum` starts from turns -0.0 into 0.0
    total: Any = 0
    for value in values:
        total = total + value
    return total


def row_sums(table: Floats) -> Floats:
    """`left_sum` of every row of a table.

    Columns are added to each other, all rows at once: three times as fast as running sums, and the same bits. A
    single column would be summed in pairs, so it is not done that way.
    """
    if len(table) < 8:
        sums: Floats = np.add.accumulate(table, axis=1)[:, -1]
    else:
        sums = np.add.reduce(np.ascontiguousarray(table.T), axis=0)
    sums += 0.0  # the zero `sum` starts from turns -0.0 into 0.0
    return sums


def mean(values: Sequence[Any]) -> Any:
    """The arithmetic mean.

    >>> mean([1, 0, 1, 1])
    0.75
    """
    return left_sum(values) / len(values)


def sample_deviation(values: Sequence[Any]) -> float:
    """The standard deviation with n - 1 below the line.

    `** 2` is the C library's `pow`, which now and then differs from `x * x` in the last bit: so no NumPy here.
    """
    middle = mean(values)
    return math.sqrt(left_sum([(value - middle) ** 2 for value in values]) / (len(values) - 1))


def mean_error(values: Sequence[Any]) -> float:
    """The standard error of the mean of independent values.

    >>> mean_error([0.0, 1.0])
    0.5
    """
    return sample_deviation(values) / math.sqrt(len(values))
