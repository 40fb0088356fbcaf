"""The sign-flip test: if two models were alike, each document's difference could as well have had the other sign.

The p-value is the share of all assignments of signs whose sum is at least as far from zero. Scores mostly lie on a lattice
(0 and 1, quarters, sums of those), and there the share is counted exactly, however many documents there are. Others are
drawn; and for very many of them the normal limit is right in every digit that is shown.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from assay.stats.distributions import normal_cdf

__all__ = ["flip_test"]

Floats = NDArray[np.float64]

_LONGEST_LATTICE = 1 << 21
_MOST_KINDS = 1 << 9
_MOST_DRAWN = 20_000
_DRAWS = 20_000
_SLACK = 1e-9
"""Sums that differ by rounding alone count as equal."""

_LEAST = 1e-13
"""Rounding hides everything below."""


def flip_test(differences: Floats, *, seed: int = 0) -> tuple[float, str]:
    """The two-sided p-value of differences that would sum to nothing, and how it was found.

    >>> flip_test(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    (0.0625, 'exact sign flips')
    """
    sizes = np.abs(differences[differences != 0])
    if not len(sizes):
        return 1.0, "exact sign flips"
    seen = abs(float(differences.sum()))
    kinds, counts = np.unique(np.round(sizes, 12), return_counts=True)
    if (steps := _lattice(kinds, counts)) is not None:
        return _counted(steps, counts, seen / (kinds[0] / steps[0])), "exact sign flips"
    if len(sizes) <= _MOST_DRAWN:
        sums = _drawn_sums(sizes, np.random.default_rng(seed))
        extreme = int((np.abs(sums) >= seen * (1 - _SLACK)).sum())
        return (1 + extreme) / (1 + _DRAWS), "sign flips"  # what was seen is one of the draws
    return 2 * normal_cdf(-seen / math.sqrt(float((sizes * sizes).sum()))), "sign flips, normal limit"


def _lattice(kinds: Floats, counts: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """Each size as a number of equal steps; None where they share no step, or the lattice would be too long."""
    if len(kinds) > _MOST_KINDS:
        return None
    unit = float(np.diff(kinds, prepend=0.0).min())
    steps = kinds / unit
    whole = np.round(steps)
    if np.abs(steps - whole).max() > 1e-6 or float(whole @ counts) > _LONGEST_LATTICE:
        return None
    return whole.astype(np.int64)


def _counted(steps: NDArray[np.int64], counts: NDArray[np.intp], seen: float) -> float:
    """The exact share, from the product of the characteristic functions: a cosine for every difference."""
    reach = int(steps @ counts)
    length = 1 << (2 * reach + 1).bit_length()
    angles = np.arange(length // 2 + 1) * (2 * np.pi / length)
    shape = np.ones(len(angles))
    for step, count in zip(steps, counts, strict=True):
        shape *= np.cos(step * angles) ** count
    chances = np.fft.irfft(shape, length)  # of the sums 0, 1, … and, from the end, -1, -2, …
    border = max(0, math.ceil(seen - 0.25))
    if border == 0:
        return 1.0
    return float(min(1.0, max(_LEAST, 2 * chances[border : reach + 1].sum())))


def _drawn_sums(sizes: Floats, draw: np.random.Generator) -> Floats:
    """Sums under random signs, eight signs to a drawn byte, in blocks that stay in the cache."""
    width = -(-len(sizes) // 8)
    height = max(1, (1 << 20) // len(sizes))
    whole = float(sizes.sum())
    sums = np.empty(_DRAWS)
    for start in range(0, _DRAWS, height):
        rows = min(height, _DRAWS - start)
        drawn = draw.integers(0, 256, size=(rows, width), dtype=np.uint8)
        ups = np.unpackbits(drawn, axis=1, count=len(sizes)).astype(np.float64)
        sums[start : start + rows] = 2 * (ups @ sizes) - whole
    return sums
