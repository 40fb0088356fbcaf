"""Confidence sequences: intervals that are valid at all sample sizes at once, for stop rules.

A 95 % interval that is checked after every document misses the true mean far more often than 5 % of the time. The error
probability of a confidence sequence holds over all checks together. This one uses betting (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", arXiv 2010.09686): for every candidate mean, a martingale bets
against it; a candidate is rejected when the wealth reaches 1 / alpha. Documents are sampled without replacement, so the
interval shrinks to a point when all are asked.

Clustered documents are sampled in whole clusters. A bet is then on the sum of a cluster's scores minus the candidate times its
size: over all clusters these sum to zero for the true mean, whatever the sizes of the clusters and however alike their documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

    `cluster_sizes` are the sizes of the clusters in the order in which they arrive, if whole clusters are in random order.
    The interval then changes only when a cluster is complete. An unknown score (failed request) counts as 0 for the lower bound and as 1 for the upper bound. `target` is the half
    width of the stop rule; the sequence is valid without it, but reaches it sooner with it.

    >>> sequence = ConfidenceSequence(100)
    >>> sequence.add([1.0] * 100)
    >>> sequence.interval.low
    1.0
    """

    __slots__ = ("_above", "_below", "_cluster", "_sizes", "clusters", "count", "level", "population")

    def __init__(
        self,
        population: int,
        *,
        level: float = 0.95,
        target: float | None = None,
        cluster_sizes: Sequence[int] | None = None,
    ) -> None:
        if cluster_sizes is not None and sum(cluster_sizes) != population:
            raise AssayError("the sizes of the clusters do not add up to the number of documents")
        self.population = population
        self.level = level
        self.count = 0
        self.clusters = 0
        """Complete clusters; without clusters, documents."""

        self._sizes = cluster_sizes
        self._cluster: list[float | None] = []
        alpha = (1 - level) / 2
        self._below = _LowerBound(population, alpha, target, cluster_sizes)
        self._above = _LowerBound(population, alpha, target, cluster_sizes)

    def add(self, scores: Iterable[float | None]) -> None:
        """Add the next scores, in the order of the documents; those of a cluster follow each other."""
        for score in scores:
            if score is not None and not 0 <= score <= 1:
                raise AssayError(f"the score {score} is not between 0 and 1")
            self.count += 1
            if self.count > self.population:
                raise AssayError(f"there are only {self.population} documents")
            self._cluster.append(score)
            if self._sizes is None or len(self._cluster) == self._sizes[self.clusters]:
                known = [one for one in self._cluster if one is not None]
                self._below.add(math.fsum(known))
                self._above.add(math.fsum(1 - one for one in known))
                self._cluster.clear()
                self.clusters += 1

    @property
    def interval(self) -> Interval:
        """The current interval of the mean of all documents."""
        low, high = self._below.bound, 1 - self._above.bound
        method = "betting" if self._sizes is None else "betting, whole clusters"
        return Interval(low=min(low, high), high=max(low, high), method=method, level=self.level)


class _LowerBound:
    """A lower bound of the mean, found by betting against all smaller candidates.

    The wealth decreases with the candidate, so the rejected candidates are always the low end of the grid, and a mean
    between two grid points is not rejected before the larger one.
    """

    __slots__ = ("_capital", "bound")

    def __init__(
        self, population: int, alpha: float, target: float | None, sizes: Sequence[int] | None
    ) -> None:
        self._capital = BettingMartingale(
            np.arange(_GRID_STEPS + 1) / _GRID_STEPS, population, alpha, target=target, sizes=sizes
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
    is still a martingale. `sizes` are the sizes of clusters in the order in which they arrive, each with the sum of its scores;
    one row per game if games have different orders.
    """

    __slots__ = (
        "_distances", "_largest", "_mean_size", "_shares", "_sizes", "candidates", "count", "limit", "past_documents",
        "population", "squares", "sums", "units", "wealth",
    )  # fmt: skip

    def __init__(
        self,
        candidates: Floats,
        population: int,
        alpha: float,
        *,
        target: float | None = None,
        sizes: ArrayLike | None = None,
    ) -> None:
        self.candidates = candidates
        self.population = population
        self._sizes = None if sizes is None else np.asarray(sizes, dtype=np.float64).T
        self._largest = None if self._sizes is None else np.maximum.accumulate(self._sizes[::-1])[::-1]
        """The largest size among the clusters from each one on: known beforehand, as a property of those that are left."""

        self.units = population if self._sizes is None else len(self._sizes)
        self._mean_size = population / self.units
        self.past_documents: Any = 0.0
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
        self.squares: Any = 0.25 * self._mean_size**2
        """Prior: one cluster of the mean size with this variance before the first."""

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
        """Bet on the next score, or the next sum of a cluster's scores, and update the wealth."""
        left = self.units - self.count
        size = 1.0 if self._sizes is None else self._sizes[self.count]
        largest = 1.0 if self._largest is None else self._largest[self.count]
        remaining = self.population * self.candidates - self.sums
        # the mean of the sums minus candidate times size, over the clusters that are left, if the candidate is the mean
        expected = (self.candidates * self.past_documents - self.sums) / left
        most_lost = np.maximum(self.candidates * largest + expected, 1e-12)
        variance = self.squares / (self.count + 1)
        boldness = self._distances * (self._mean_size * self.units / left) / variance
        stakes = np.minimum(boldness, _MAX_STAKE / most_lost)
        gains = scores - self.candidates * size - expected
        self.wealth = self.wealth + np.log1p(np.maximum(stakes * gains, -_MAX_STAKE))
        self.wealth[:, remaining < -_ROUNDING] = np.inf  # the scores so far exceed this mean
        middle = (0.5 * self._mean_size + self.sums) / (self._mean_size + self.past_documents)
        self.count += 1
        self.sums = self.sums + scores
        self.past_documents = self.past_documents + size
        self.squares = self.squares + (scores - middle * size) ** 2
