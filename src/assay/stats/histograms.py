"""Histograms of scores, token counts, times and costs, with round bin edges and a logarithmic scale for long tails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Bin", "Histogram", "Scale", "choose_scale", "compute_histogram"]

Floats = NDArray[np.float64]

_MAX_EXACT_VALUES = 12
_TAIL = 12.0
"""Values whose 99.5th percentile is this many times the median have a long tail."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of an axis. Logarithms are of `value + offset`: an offset of 1 gives 0 a place among counts."""

    kind: Literal["linear", "log"] = "linear"
    offset: float = 0.0

    def to_axis(self, values: ArrayLike) -> Floats:
        """Return the positions of values.

        >>> Scale("log", 1.0).to_axis([0, 99]).tolist()
        [0.0, 2.0]
        """
        given = np.asarray(values, dtype=np.float64)
        return np.log10(given + self.offset) if self.kind == "log" else given


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The number of values from `low` to `high`; `low == high`: exactly that value."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The distribution of some values."""

    bins: tuple[Bin, ...]
    scale: Scale
    count: int
    total: float
    low: float
    high: float
    quantiles: tuple[tuple[float, float], ...]
    """(share, value): the median, and the 90th and 99th percentile."""

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def exact(self) -> bool:
        """Whether each bin is a single value."""
        return all(one.low == one.high for one in self.bins)


def choose_scale(values: ArrayLike, *, whole: bool = False) -> Scale:
    """Return a logarithmic scale for values with a long tail, else a linear one. `whole`: they are counts.

    >>> choose_scale([1, 1, 2, 5000]).kind, choose_scale([1, 2, 3]).kind
    ('log', 'linear')
    """
    given = np.asarray(values, dtype=np.float64)
    if not len(given):
        return Scale()
    low, median, high = (float(one) for one in np.quantile(given, (0.0, 0.5, 0.995)))
    if low < 0 or (low == 0 and not whole) or high <= _TAIL * max(median, 1.0 if whole else 0.0):
        return Scale()
    return Scale("log", 1.0 if whole and low < 1 else 0.0)


def compute_histogram(values: ArrayLike, *, whole: bool = False, max_bins: int = 30) -> Histogram:
    """Count values in bins with round edges. A few different values have one bin each. `whole`: the values are counts.

    >>> [(one.low, one.high, one.count) for one in compute_histogram([0, 1, 1]).bins]
    [(0.0, 0.0, 1), (1.0, 1.0, 2)]
    """
    given = np.asarray(values, dtype=np.float64)
    given = given[np.isfinite(given)]
    if not len(given):
        return Histogram(
            bins=(), scale=Scale(), count=0, total=0.0, low=math.nan, high=math.nan, quantiles=()
        )
    low, high = float(given.min()), float(given.max())
    shares = (0.5, 0.9, 0.99)
    quantiles = tuple(zip(shares, map(float, np.quantile(given, shares)), strict=True))
    distinct = _list_distinct(given)
    scale = Scale()
    if distinct is not None:
        bins = tuple(Bin(low=value, high=value, count=count) for value, count in distinct)
    else:
        scale = choose_scale(given, whole=whole)
        edges = (
            _build_log_edges(low, high, scale, max_bins, whole=whole)
            if scale.kind == "log"
            else _build_round_edges(low, high, max_bins, whole=whole)
        )
        counts, _ = np.histogram(given, bins=edges)
        bins = tuple(
            Bin(low=float(edges[at]), high=float(edges[at + 1]), count=int(count))
            for at, count in enumerate(counts)
        )
    return Histogram(
        bins=bins,
        scale=scale,
        count=len(given),
        total=float(given.sum()),
        low=low,
        high=high,
        quantiles=quantiles,
    )


def _list_distinct(values: Floats) -> list[tuple[float, int]] | None:
    """Return the values and their counts; None if there are many."""
    if len(values) > 10_000 and len(np.unique(values[:10_000])) > _MAX_EXACT_VALUES:
        return None  # sorting all values takes longer
    found, counts = np.unique(values, return_counts=True)
    return (
        list(zip(found.tolist(), counts.tolist(), strict=True)) if len(found) <= _MAX_EXACT_VALUES else None
    )


def _build_round_edges(low: float, high: float, max_bins: int, *, whole: bool) -> Floats:
    """Return edges that are multiples of 1, 2 or 5 times a power of ten."""
    step = _find_round_step((high - low) / max_bins)
    if whole:
        step = max(1.0, step)
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    if whole and last * step <= high:
        last += 1
    exponent = math.floor(math.log10(step) + 1e-9)
    digit = round(step / 10.0**exponent)
    return np.array([float(f"{number * digit}e{exponent}") for number in range(first, last + 1)])


def _find_round_step(least: float) -> float:
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _build_log_edges(low: float, high: float, scale: Scale, max_bins: int, *, whole: bool) -> Floats:
    start, end = (float(one) for one in scale.to_axis([low, high]))
    edges = 10 ** np.linspace(start, end, max_bins + 1) - scale.offset
    if whole:
        edges = np.unique(np.floor(edges))
        return np.append(edges[edges <= high], math.floor(high) + 1.0) if edges[-1] <= high else edges
    edges[0], edges[-1] = low, high
    return edges
