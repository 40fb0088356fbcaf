"""A mean and its standard error while the scores are still coming in: for progress lines, not for results."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["Running"]


class Running:
    """Mean and spread of all values added so far, in constant memory (Welford's method).

    >>> progress = Running()
    >>> progress.add([1.0, 0.0, 1.0, 0.0])
    >>> progress.mean, progress.count
    (0.5, 4)
    """

    __slots__ = ("_mean", "_squares", "count")

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: Iterable[float]) -> None:
        """Take in more values, in any portions."""
        for value in values:
            self.count += 1
            step = value - self._mean
            self._mean += step / self.count
            self._squares += step * (value - self._mean)

    @property
    def mean(self) -> float | None:
        """The mean so far; None before the first value."""
        return self._mean if self.count else None

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean so far; None before the second value."""
        if self.count < 2:
            return None
        return math.sqrt(self._squares / (self.count - 1) / self.count)
