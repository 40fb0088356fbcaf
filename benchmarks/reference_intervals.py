"""Known intervals of means and ratios, for many samples at once: what the intervals of Assay are measured against.

The references are Student's t, Johnson's modified t, Hall's transformed t, the bootstrap-t, BCa and the expanded percentile
bootstrap. All samples of a simulation share their resamples, which reduces a bootstrap to a few matrix products.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.numerics.distributions import normal_cdf, t_quantile

__all__ = ["Bounds", "Samples", "compute_references"]

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]

_NORMAL = NormalDist()


class Samples:
    """Many samples of independent units (documents or clusters): a row per sample."""

    def __init__(self, tops: Floats, bottoms: Floats | None = None) -> None:
        self.tops = tops
        self.bottoms = np.ones_like(tops) if bottoms is None else bottoms
        self.units = tops.shape[1]
        whole = self.bottoms.sum(axis=1)
        self.values: Floats = tops.sum(axis=1) / whole
        steps = tops - self.values[:, None] * self.bottoms
        squares = (steps * steps).sum(axis=1)
        self.errors: Floats = np.sqrt(squares * self.units / (self.units - 1)) / whole
        self.deviations: Floats = self.errors * math.sqrt(self.units)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.skewness: Floats = np.nan_to_num((steps**3).mean(axis=1) / (squares / self.units) ** 1.5)


def compute_references(
    samples: Samples, limits: tuple[float, float], draw: np.random.Generator, resamples: int = 999
) -> dict[str, Bounds]:
    """Return the lower and upper bounds of each reference, within the limits of the metric."""
    found = {**_compute_closed_forms(samples), **_compute_bootstraps(samples, draw, resamples)}
    return {name: (np.clip(low, *limits), np.clip(high, *limits)) for name, (low, high) in found.items()}


def _compute_closed_forms(samples: Samples) -> dict[str, Bounds]:
    count, values, errors = samples.units, samples.values, samples.errors
    quantile = t_quantile(0.975, count - 1)
    shift = samples.skewness * samples.deviations / (6 * count)
    slope = samples.skewness / math.sqrt(count)

    def invert(goal: float) -> Floats:
        """Solve Hall's cubic for the studentised mean."""
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = np.cbrt(1 + slope * (goal - slope / 6))
            solved = 3 * (inside - 1) / slope
        return np.where(np.abs(slope) < 1e-9, goal, solved)

    return {
        "t": (values - quantile * errors, values + quantile * errors),
        "Johnson": (values + shift - quantile * errors, values + shift + quantile * errors),
        "Hall": (values - invert(quantile) * errors, values - invert(-quantile) * errors),
    }


def _compute_bootstraps(samples: Samples, draw: np.random.Generator, resamples: int) -> dict[str, Bounds]:
    count, values, errors = samples.units, samples.values, samples.errors
    weights = draw.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    tops, bottoms = samples.tops, samples.bottoms
    whole = weights @ bottoms.T
    ratios = (weights @ tops.T) / whole
    squares = weights @ (tops * tops).T - 2 * ratios * (weights @ (tops * bottoms).T)
    squares += ratios * ratios * (weights @ (bottoms * bottoms).T)
    spread = np.sqrt(np.maximum(squares, 0.0) * count / (count - 1)) / whole
    studentised = (ratios - values) / np.maximum(spread, 1e-3 * errors + 1e-300)
    below, above = np.quantile(studentised, (0.025, 0.975), axis=0)
    ordered = np.sort(ratios, axis=0)
    reach = math.sqrt(count / (count - 1)) * t_quantile(0.975, count - 1)
    tail = np.full(len(values), normal_cdf(-reach))
    return {
        "bootstrap-t": (values - above * errors, values - below * errors),
        "BCa": tuple(_pick(ordered, part) for part in _compute_bca_tails(samples, ratios)),
        "percentile": (_pick(ordered, tail), _pick(ordered, 1 - tail)),
    }


def _compute_bca_tails(samples: Samples, ratios: Floats) -> Bounds:
    """Return the shares of resamples below each bound of the bias-corrected and accelerated bootstrap."""
    tops, bottoms = samples.tops, samples.bottoms
    left_out = (tops.sum(axis=1)[:, None] - tops) / (bottoms.sum(axis=1)[:, None] - bottoms)
    steps = left_out.mean(axis=1)[:, None] - left_out
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = np.nan_to_num((steps**3).sum(axis=1) / (6 * (steps * steps).sum(axis=1) ** 1.5))
    share = ((ratios < samples.values).mean(axis=0) + (ratios <= samples.values).mean(axis=0)) / 2
    bias = np.array([_NORMAL.inv_cdf(min(max(one, 1e-3), 1 - 1e-3)) for one in share])
    tails = []
    for goal in (-1.959964, 1.959964):
        moved = bias + goal
        tails.append(_normal_cdf(bias + moved / np.maximum(1 - speed * moved, 1e-3)))
    return tails[0], tails[1]


def _normal_cdf(values: Floats) -> Floats:
    return np.array([normal_cdf(float(one)) for one in values])


def _pick(ordered: Any, shares: Floats) -> Floats:
    """Return a quantile of each column, which is sorted."""
    places = np.clip(shares * (len(ordered) - 1), 0, len(ordered) - 1)
    rows, parts = places.astype(np.intp), places - places.astype(np.intp)
    columns = np.arange(ordered.shape[1])
    upper = ordered[np.minimum(rows + 1, len(ordered) - 1), columns]
    return np.asarray(ordered[rows, columns] * (1 - parts) + upper * parts)
