"""Confidence sequences: intervals that are valid at all sample sizes at once, for stop rules.

A 95 % interval that is checked after every document misses the true mean far more often than 5 % of the time. The error
probability of a confidence sequence holds over all checks together. This one uses betting (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", arXiv 2010.09686): for every candidate mean, a martingale bets
against it; a candidate is rejected when the wealth reaches 1 / alpha. Documents are sampled without replacement, so the
interval shrinks to a point when all are asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import Interval

__all__ = ["BettingMartingale", "ConfidenceSequence"]

Floats = NDArray[np.float64]

_GRID_STEPS = 1000
"""Grid of candidate means: steps of a tenth of a point."""

_ROUNDING = 1e-6
"""Tolerance for rounding errors of sums."""

_DISTANCES = (0.005, 0.015, 0.04, 0.1, 0.25)
"""Distances below the mean for which the bets are optimal."""

_MAX_STAKE = 0.5
"""Maximum fraction of the wealth at stake."""


class ConfidenceSequence:
    """A confidence sequence of the mean of a finite set of scores between 0 and 1 that arrive in random order.

    An unknown score (failed request) counts as 0 for the lower bound and as 1 for the upper bound. `target` is the half
    width of the stop rule; the sequence is valid without it, but reaches it sooner with it.

    >>> sequence = ConfidenceSequence(100)
    >>> sequence.add([1.0] * 100)
    >>> sequence.interval.low
    1.0
    """

    __slots__ = ("_above", "_below", "count", "level", "population")

    def __init__(self, population: int, *, level: float = 0.95, target: float | None = None) -> None:
        self.population = population
        self.level = level
        self.count = 0
        alpha = (1 - level) / 2
        self._below = _LowerBound(population, alpha, target)
        self._above = _LowerBound(population, alpha, target)

    def add(self, scores: Iterable[float | None]) -> None:
        """Add the next scores, in the order of the documents."""
        for score in scores:
            if score is not None and not 0 <= score <= 1:
                raise AssayError(f"the score {score} is not between 0 and 1")
            self.count += 1
            if self.count > self.population:
                raise AssayError(f"there are only {self.population} documents")
            self._below.add(0.0 if score is None else score)
            self._above.add(0.0 if score is None else 1 - score)

    @property
    def interval(self) -> Interval:
        """The current interval of the mean of all documents."""
        low, high = self._below.bound, 1 - self._above.bound
        return Interval(low=min(low, high), high=max(low, high), method="betting", level=self.level)


class _LowerBound:
    """A lower bound of the mean, found by betting against all smaller candidates.

    The wealth decreases with the candidate, so the rejected candidates are always the low end of the grid, and a mean
    between two grid points is not rejected before the larger one.
    """

    __slots__ = ("_capital", "bound")

    def __init__(self, population: int, alpha: float, target: float | None) -> None:
        self._capital = BettingMartingale(
            np.arange(_GRID_STEPS + 1) / _GRID_STEPS, population, alpha, target=target
        )
        self.bound = 0.0

    def add(self, score: float) -> None:
        capital = self._capital
        capital.add(score)
        self.bound = max(
            self.bound, float(capital.sums) / capital.population
        )  # the remaining scores are at least 0
        standing = np.flatnonzero(~capital.ruled_out)
        first = int(standing[0]) if len(standing) else len(capital.candidates) - 1
        if first:
            self.bound = max(self.bound, float(capital.candidates[first - 1]))
            capital.candidates, capital.wealth = capital.candidates[first:], capital.wealth[:, first:]


class BettingMartingale:
    """Wealth of bets that the mean is above a candidate: one per candidate against the same scores, or many independent
    ones, each against its own scores.

    The wealth is split: half of it is bet optimally for a mean at distance `target`, the rest for other distances. The sum
    is still a martingale.
    """

    __slots__ = (
        "_distances", "_shares", "candidates", "count", "limit", "population", "squares", "sums", "wealth",
    )  # fmt: skip

    def __init__(
        self, candidates: Floats, population: int, alpha: float, *, target: float | None = None
    ) -> None:
        self.candidates = candidates
        self.population = population
        self.limit = -math.log(alpha)
        self.count = 0
        distances = [*_DISTANCES, *([] if target is None else [target])]
        shares = np.full(len(distances), 1 / len(distances))
        if target is not None:
            shares[-1], shares[:-1] = 0.5, 0.5 / len(_DISTANCES)
        self._distances = np.array(distances)[:, None]
        self._shares = np.log(shares)[:, None]
        self.wealth = np.zeros((len(distances), len(candidates)))
        """Log wealth by distance and candidate."""

        self.sums: Any = 0.0
        self.squares: Any = 0.25
        """Prior: one score of this variance before the first."""

    @property
    def ruled_out(self) -> NDArray[np.bool_]:
        """Which candidates are rejected."""
        shares = self.wealth + self._shares
        most = shares.max(axis=0)
        sure = np.isinf(most)
        most[sure] = 0.0
        total = most + np.log(np.exp(shares - most).sum(axis=0))
        ruled: NDArray[np.bool_] = sure | (total >= self.limit)
        return ruled

    def add(self, scores: Any) -> None:
        """Bet on the next score and update the wealth."""
        left = self.population - self.count
        remaining = self.population * self.candidates - self.sums
        possible = np.clip(remaining / left, 1e-12, 1.0)
        variance = self.squares / (self.count + 1)
        boldness = self._distances * (self.population / left) / variance
        stakes = np.minimum(boldness, _MAX_STAKE / possible)
        self.wealth = self.wealth + np.log1p(stakes * (scores - possible))
        self.wealth[:, remaining < -_ROUNDING] = np.inf  # the scores so far exceed this mean
        self.count += 1
        middle = (0.5 + self.sums) / self.count
        self.sums = self.sums + scores
        self.squares = self.squares + (scores - middle) ** 2
