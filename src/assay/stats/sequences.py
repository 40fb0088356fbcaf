"""Intervals that hold however often one looks: for stopping a run as soon as it is sure enough.

A 95 % interval that is looked at after every document misses the truth far more often than one time in twenty. A
confidence sequence does not: the chance that it *ever* misses is kept. This one bets (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", arXiv 2010.09686): for every value the mean might have, somebody
who does not believe it bets on the next score, and where he has made twenty times his money the value is ruled out. A
benchmark is finite and each document is asked once, so the bets are those of sampling without replacement, and the interval
closes when the documents run out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.stats.intervals import Interval

__all__ = ["Capital", "ConfidenceSequence"]

Floats = NDArray[np.float64]

_GRID = 1000
"""Values of the mean that are told apart: a tenth of a point."""

_ROUNDING = 1e-6
"""What sums of many scores may be off by."""

_DISTANCES = (0.005, 0.015, 0.04, 0.1, 0.25)
"""How far below the mean a value may be that is bet against."""

_MOST_STAKED = 0.5
"""The share of his money that a better puts at risk at most."""


class ConfidenceSequence:
    """The mean of a finite set of scores between 0 and 1, while they come in, in random order.

    A score that is not known (the request failed) may be anything: it counts as 0 below and as 1 above. `target` is the
    half width somebody waits for: it holds without, and gets there sooner with it.

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
        """Take in the next scores, in the order the documents were drawn."""
        for score in scores:
            if score is not None and not 0 <= score <= 1:
                raise AssayError(f"a score of {score} is not between 0 and 1")
            self.count += 1
            if self.count > self.population:
                raise AssayError(f"there are only {self.population} documents")
            self._below.add(0.0 if score is None else score)
            self._above.add(0.0 if score is None else 1 - score)

    @property
    def interval(self) -> Interval:
        """Where the mean of all documents is: right at every moment at once, with the level's probability."""
        low, high = self._below.bound, 1 - self._above.bound
        return Interval(low=min(low, high), high=max(low, high), method="betting", level=self.level)


class _LowerBound:
    """A value the mean is above, found by betting against every smaller one.

    Nobody wins more against a larger value than against a smaller one, so what is ruled out is always the low end of the
    grid, and a mean between two values of the grid is never ruled out before the larger one is.
    """

    __slots__ = ("_capital", "bound")

    def __init__(self, population: int, alpha: float, target: float | None) -> None:
        self._capital = Capital(np.arange(_GRID + 1) / _GRID, population, alpha, target=target)
        self.bound = 0.0

    def add(self, score: float) -> None:
        capital = self._capital
        capital.add(score)
        self.bound = max(self.bound, float(capital.sums) / capital.population)  # the rest cannot be below 0
        standing = np.flatnonzero(~capital.ruled_out)
        first = int(standing[0]) if len(standing) else len(capital.candidates) - 1
        if first:
            self.bound = max(self.bound, float(capital.candidates[first - 1]))
            capital.candidates, capital.wealth = capital.candidates[first:], capital.wealth[:, first:]


class Capital:
    """What betters make who say that the mean is above a candidate: one for each candidate, against the same scores, or
    one for each of many games at once, each against its own scores.

    Each has split his money: a half is staked as is best if the mean lies as far above as `target`, the rest as is best for
    other distances. What the shares make together is a fair game still.
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
        """Logarithms, by distance and candidate."""

        self.sums: Any = 0.0
        self.squares: Any = 0.25
        """As if one score of that variance had been seen before the first."""

    @property
    def ruled_out(self) -> NDArray[np.bool_]:
        """Where so much was won that the candidate is not believed any more."""
        shares = self.wealth + self._shares
        most = shares.max(axis=0)
        sure = np.isinf(most)
        most[sure] = 0.0
        total = most + np.log(np.exp(shares - most).sum(axis=0))
        ruled: NDArray[np.bool_] = sure | (total >= self.limit)
        return ruled

    def add(self, scores: Any) -> None:
        """Bet on one more score, then see it."""
        left = self.population - self.count
        remaining = self.population * self.candidates - self.sums
        possible = np.clip(remaining / left, 1e-12, 1.0)
        variance = self.squares / (self.count + 1)
        boldness = self._distances * (self.population / left) / variance
        stakes = np.minimum(boldness, _MOST_STAKED / possible)
        self.wealth = self.wealth + np.log1p(stakes * (scores - possible))
        self.wealth[:, remaining < -_ROUNDING] = np.inf  # too many were right already for so small a mean
        self.count += 1
        middle = (0.5 + self.sums) / self.count
        self.sums = self.sums + scores
        self.squares = self.squares + (scores - middle) ** 2
