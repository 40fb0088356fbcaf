"""Regression alarms over an open-ended sequence of checkpoints, with a bound on the probability of any false alarm.

Every new checkpoint is one look. The null hypothesis is that no later checkpoint is worse than an earlier one. At look `k` the
alarm may spend `alpha / (k (k - 1))`, which sums to `alpha` over all looks, however many there will be. The look divides its
share over blocks of 1, 2, 4, … consecutive checkpoints (long blocks find small drops that persist), and over the earlier blocks
that the last block can be compared with: one half for the block just before, the other half in equal parts for all earlier blocks.

By the union bound the probability that any comparison of any look is a false alarm is at most `alpha`. The bound does not need
independence, so it holds although all comparisons share documents, and it permits any choice of the comparisons after seeing the
data: "the best checkpoint so far" is a valid reference because every earlier checkpoint has its own share.

A comparison is a one-sided sign-flip test of paired documents, or of whole clusters. It is exact if the scores of a document at two
checkpoints are exchangeable, as those of a frozen model that samples its answers, and correct for large numbers of documents
if only the means are equal.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.comparisons.sign_flip_test import compute_drop_p_value
from assay.stats.intervals.confidence_intervals import Clusters, encode_clusters

__all__ = ["Regression", "RegressionDetector", "compute_look_level"]

Floats = NDArray[np.float64]

_MIN_Z = 2.0
"""Comparisons below this statistic are not tested: no level that a look can spend is reached there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A significant drop: a block of checkpoints is worse than an earlier block."""

    earlier: tuple[float, ...]
    later: tuple[float, ...]
    """The steps of both blocks."""

    difference: float
    """Mean score of the later block minus that of the earlier one."""

    p_value: float
    level: float
    """The significance level that this comparison had."""

    documents: int
    """Documents with a score at every checkpoint of both blocks."""


def compute_look_level(look: int, alpha: float) -> float:
    """Return the part of `alpha` that a look may spend; the first look has nothing to compare.

    >>> compute_look_level(2, 0.05), round(sum(compute_look_level(look, 0.05) for look in range(1, 100_000)), 4)
    (0.025, 0.05)
    """
    return 0.0 if look < 2 else alpha / (look * (look - 1))


class RegressionDetector:
    """Compares each new checkpoint with the earlier ones.

    Scores are those of the same documents in the same order, higher is better, NaN for a document without a score. Checkpoints
    may arrive in any order of their steps.

    >>> detector = RegressionDetector(alpha=0.05)
    >>> detector.add(100, [1.0] * 60), detector.add(200, [1.0] * 30 + [0.0] * 30).later
    (None, (200,))
    """

    def __init__(self, alpha: float = 0.05, clusters: Clusters | None = None) -> None:
        if not 0 < alpha < 1:
            raise AssayError(f"the false-alarm rate must be between 0 and 1, not {alpha}")
        self.alpha = alpha
        self._order: NDArray[np.intp] | None = None
        """The documents sorted by cluster; None if they are independent."""

        if clusters is not None:
            codes, _ = encode_clusters(clusters)
            self._order = np.argsort(codes, kind="stable")
            self._starts = np.flatnonzero(np.diff(codes[self._order], prepend=-1))
        self._steps: list[float] = []
        self._scores: list[Floats] = []
        self._sums = self._counts = np.zeros((1, 0))
        """Running sums over checkpoints of the scores, and of the number of scores, of each document."""

    @property
    def looks(self) -> int:
        """The number of checkpoints so far."""
        return len(self._steps)

    def add(self, step: float, scores: ArrayLike) -> Regression | None:
        """Add the scores of a checkpoint; return its most significant drop, or None."""
        values = np.asarray(scores, dtype=np.float64)
        if self._scores and len(values) != len(self._scores[0]):
            raise AssayError("all checkpoints need scores of the same documents")
        place = bisect.bisect_right(self._steps, step)
        self._steps.insert(place, step)
        self._scores.insert(place, values)
        self._update_sums(place)
        level = compute_look_level(self.looks, self.alpha)
        if not level:
            return None
        ends = {place, self.looks - 1}
        found = [drop for end in ends for drop in self._compare_blocks(end, level / len(ends))]
        return min(found, key=lambda drop: drop.p_value / drop.level, default=None)

    def _update_sums(self, place: int) -> None:
        """Update the running sums from the position of a new checkpoint on; the first row is zero."""
        if self.looks == 1:
            self._sums = self._counts = np.zeros((1, len(self._scores[0])))
        added = np.stack(self._scores[place:])
        known = ~np.isnan(added)
        totals = self._sums[place] + np.where(known, added, 0.0).cumsum(axis=0)
        counts = self._counts[place] + known.cumsum(axis=0, dtype=np.float64)
        self._sums = np.concatenate((self._sums[: place + 1], totals))
        self._counts = np.concatenate((self._counts[: place + 1], counts))

    def _compare_blocks(self, end: int, level: float) -> list[Regression]:
        """Compare blocks that end at a position with earlier blocks of the same size."""
        found = []
        size, share = 1, 0
        while 2 * size <= end + 1:
            share += 1
            own = level / (share * (share + 1))
            count = end + 2 - 2 * size  # positions at which an earlier block can start
            drops = self._compute_drops(end + 1 - size, count, size)
            units = (
                drops if self._order is None else np.add.reduceat(drops[:, self._order], self._starts, axis=1)
            )
            spreads = np.sqrt(np.einsum("ij,ij->i", units, units))
            statistics = units.sum(axis=1) / np.maximum(spreads, 1e-300)
            adjacent = count - 1
            for start in {int(statistics.argmax()), adjacent}:
                if statistics[start] < _MIN_Z:
                    continue
                reach = own / (2 * count) + (own / 2 if start == adjacent else 0.0)
                p_value = compute_drop_p_value(np.where(np.abs(units[start]) < 1e-12, 0.0, units[start]))
                if p_value <= reach:
                    blocks = (start, end + 1 - size)
                    found.append(self._describe(blocks, size, drops[start], p_value, reach))
            size *= 2
        return found

    def _compute_drops(self, later: int, count: int, size: int) -> Floats:
        """Return how much the mean of a block is below those of the first earlier blocks, by document; 0 if scores are missing."""
        sums, counts = self._sums, self._counts
        own = (sums[later + size] - sums[later]) / size
        drops: Floats = (sums[size : size + count] - sums[:count]) / size - own
        if counts[-1].min() < self.looks:
            full = counts[size : size + count] - counts[:count] == size
            full &= counts[later + size] - counts[later] == size
            drops[~full] = 0.0
        return drops

    def _describe(
        self, blocks: tuple[int, int], size: int, drops: Floats, p_value: float, level: float
    ) -> Regression:
        shared = np.ones(len(drops), dtype=bool)
        for start in blocks:
            shared &= self._counts[start + size] - self._counts[start] == size
        earlier, later = (tuple(self._steps[start : start + size]) for start in blocks)
        return Regression(
            earlier=earlier,
            later=later,
            difference=-float(drops.sum()) / max(int(shared.sum()), 1),
            p_value=p_value,
            level=level,
            documents=int(shared.sum()),
        )
