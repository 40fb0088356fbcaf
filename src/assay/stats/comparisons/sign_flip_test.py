"""The sign-flip test: under the null hypothesis each difference could have had the other sign.

The p-value is the fraction of sign assignments whose sum is at least as far from zero. Scores on a lattice (0 and 1,
quarters) are counted exactly for any number of documents. Other scores are sampled; for very many documents the normal
approximation is accurate in all displayed digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from assay.stats.numerics.distributions import normal_cdf

__all__ = ["compute_drop_p_value", "run_sign_flip_test"]

Floats = NDArray[np.float64]

_MAX_LATTICE_LENGTH = 1 << 21
_MAX_DISTINCT_SIZES = 1 << 9
_MAX_SAMPLED_DIFFERENCES = 20_000
_DRAWS = 20_000
_RELATIVE_TOLERANCE = 1e-9
"""Sums that differ only by rounding count as equal."""

_MIN_P_VALUE = 1e-13
"""Smaller p-values are below rounding error."""

_TAIL_FACTOR = 3.1787
"""The tail of a sum with random signs is at most this many times that of a normal distribution with the same variance
(Bentkus and Dzindzalieta 2015, the best constant)."""


def run_sign_flip_test(differences: Floats, *, seed: int = 0) -> tuple[float, str]:
    """Return the two-sided p-value of a zero mean difference, and the method.

    >>> run_sign_flip_test(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    (0.0625, 'exact sign flips')
    """
    sizes = np.abs(differences[differences != 0])
    if not len(sizes):
        return 1.0, "exact sign flips"
    observed = abs(float(differences.sum()))
    distinct, counts = np.unique(np.round(sizes, 12), return_counts=True)
    if (steps := _find_lattice(distinct, counts)) is not None:
        return _compute_exact_p_value(steps, counts, observed / (distinct[0] / steps[0])), "exact sign flips"
    if len(sizes) <= _MAX_SAMPLED_DIFFERENCES:
        sums = _draw_sums(sizes, np.random.default_rng(seed))
        extreme = int((np.abs(sums) >= observed * (1 - _RELATIVE_TOLERANCE)).sum())
        return (1 + extreme) / (1 + _DRAWS), "sign flips"  # the observed signs count as one draw
    return 2 * normal_cdf(-observed / math.sqrt(float((sizes * sizes).sum()))), "sign flips, normal limit"


def compute_drop_p_value(drops: Floats) -> float:
    """Return the one-sided p-value that the mean drop is positive, without sampling, so that very small levels can be tested.

    Drops on a lattice (differences of scores of 0 and 1, or of their means) are counted exactly. For others it is an upper bound,
    valid for any number of documents.

    >>> compute_drop_p_value(np.array([1.0, 1.0, 1.0, 0.0])), compute_drop_p_value(np.array([-1.0, 0.0]))
    (0.125, 1.0)
    """
    observed = float(drops.sum())
    sizes = np.abs(drops[drops != 0])
    if observed <= 0 or not len(sizes):
        return 1.0
    distinct, counts = np.unique(np.round(sizes, 12), return_counts=True)
    if (steps := _find_lattice(distinct, counts)) is not None:
        both = _compute_exact_p_value(steps, counts, observed / (distinct[0] / steps[0]))
        return both / 2
    return min(1.0, _TAIL_FACTOR * normal_cdf(-observed / math.sqrt(float((sizes * sizes).sum()))))


def _find_lattice(distinct: Floats, counts: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """Return each size as a number of lattice steps; None if there is no lattice or it is too long."""
    if len(distinct) > _MAX_DISTINCT_SIZES:
        return None
    unit = float(np.diff(distinct, prepend=0.0).min())
    steps = distinct / unit
    total = np.round(steps)
    if np.abs(steps - total).max() > 1e-6 or float(total @ counts) > _MAX_LATTICE_LENGTH:
        return None
    return total.astype(np.int64)


def _compute_exact_p_value(steps: NDArray[np.int64], counts: NDArray[np.intp], observed: float) -> float:
    """Return the exact p-value from the product of the characteristic functions, a cosine per difference."""
    reach = int(steps @ counts)
    length = 1 << (2 * reach + 1).bit_length()
    angles = np.arange(length // 2 + 1) * (2 * np.pi / length)
    shape = np.ones(len(angles))
    for step, count in zip(steps, counts, strict=True):
        shape *= np.cos(step * angles) ** count
    chances = np.fft.irfft(shape, length)  # sums 0, 1, … and, from the end, -1, -2, …
    border = max(0, math.ceil(observed - 0.25))
    if border == 0:
        return 1.0
    return float(min(1.0, max(_MIN_P_VALUE, 2 * chances[border : reach + 1].sum())))


def _draw_sums(sizes: Floats, draw: np.random.Generator) -> Floats:
    """Return sums with random signs, eight per random byte, in blocks that fit in the CPU cache."""
    width = -(-len(sizes) // 8)
    height = max(1, (1 << 20) // len(sizes))
    total = float(sizes.sum())
    sums = np.empty(_DRAWS)
    for start in range(0, _DRAWS, height):
        rows = min(height, _DRAWS - start)
        drawn = draw.integers(0, 256, size=(rows, width), dtype=np.uint8)
        ups = np.unpackbits(drawn, axis=1, count=len(sizes)).astype(np.float64)
        sums[start : start + rows] = 2 * (ups @ sizes) - total
    return sums
