"""Confidence intervals of corpus metrics: perplexity, bits per byte, F1, median, BLEU.

A metric that is a function of a mean or of a ratio of sums gets the interval of that mean or ratio; others are bootstrapped.
With clusters, the units are clusters instead of documents.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.stats.aggregations import score_questions
from assay.stats.intervals.bootstrap import BOOTSTRAP_AGGREGATIONS
from assay.stats.intervals.confidence_intervals import (
    Clusters,
    Interval,
    encode_clusters,
    mean_interval,
    ratio_interval,
    sum_by_cluster,
)
from assay.stats.intervals.resampling import bootstrap_interval
from assay.stats.numerics.distributions import binomial_cdf
from assay.stats.numerics.exact_summation import to_float_array

__all__ = ["CORPUS_AGGREGATIONS", "corpus_interval"]

Floats = NDArray[np.float64]

CORPUS_AGGREGATIONS = BOOTSTRAP_AGGREGATIONS | {
    "weighted_perplexity",
    "bits_per_byte",
    "acc_all",
    "brier_score",
}
"""Aggregations that have an interval of their own, other than the mean."""

_MIN_RESAMPLES = 1000
_MIN_DRAWS = 40_000
"""Few documents have wide percentiles, which few resamples reach. They get more resamples, which cost little."""

_LIMITS = {
    "f1": (0.0, 1.0),
    "matthews_corrcoef": (-1.0, 1.0),
    "bleu": (0.0, 100.0),
    "chrf": (0.0, 100.0),
    "chrf++": (0.0, 100.0),
    "ter": (0.0, math.inf),
}


def corpus_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None = None, *, level: float = 0.95
) -> Interval | None:
    """Return the interval of a corpus metric; None if there is no method or too little data.

    >>> found = corpus_interval("perplexity", [-1.0, -2.0, -3.0, -2.0])
    >>> found.method, found.low < math.exp(2) < found.high
    ('adjusted t', True)
    """
    if clusters is not None and encode_clusters(clusters)[1] == len(values):
        clusters = None
    try:
        found = _METHODS.get(name, _bootstrap)(name, values, clusters, level)
    except (
        AssayError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    ):  # too few documents, or values of another kind
        return None
    return found if found is not None and math.isfinite(found.half_width) and found.half_width > 0 else None


Method = Callable[[str, Sequence[Any], Clusters | None, float], Interval | None]


def _perplexity_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    numbers = to_float_array(values)
    if numbers is None or not len(numbers):
        return None
    limits = (-math.inf, 0.0) if numbers.max() <= 0 else None
    found = mean_interval(numbers, clusters, level=level, limits=limits)
    return replace(found, low=math.exp(-found.high), high=math.exp(-found.low))


def _nanmean_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    numbers = to_float_array(values)
    if numbers is None:
        return None
    known = ~np.isnan(numbers)
    kept = None if clusters is None else [one for one, keep in zip(clusters, known, strict=True) if keep]
    return mean_interval(numbers[known], kept, level=level)


def _ratio_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    tops, bottoms = (np.array(column) for column in np.asarray(values, dtype=np.float64).T)
    if clusters is not None:
        codes, count = encode_clusters(clusters)
        tops, bottoms = (sum_by_cluster(column, codes, count) for column in (tops, bottoms))
    limits = (
        (0.0 if tops.min() >= 0 else -math.inf),
        (0.0 if tops.max() <= 0 else math.inf),
    )
    method = "ratio, adjusted t" if clusters is None else "clustered"
    found = ratio_interval(tops, bottoms, level=level, limits=limits, method=method)
    if name == "weighted_perplexity":
        return replace(found, low=math.exp(-found.high), high=math.exp(-found.low))
    if name == "bits_per_byte":
        return replace(found, low=-found.high / math.log(2), high=-found.low / math.log(2))
    return found


def _f1_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    """Return the interval of F1 from that of a proportion.

    Of the documents that are labelled or predicted as positive, F1 = 2 J / (1 + J), where J is the share of those that are
    both.
    """
    pairs = [(gold == 1, prediction == 1) for gold, prediction in values]
    kept = [index for index, pair in enumerate(pairs) if any(pair)]
    if not kept or not {type(one) for pair in values for one in pair} <= {int, bool, np.bool_, np.int64}:
        return _bootstrap(name, values, clusters, level)
    names = None if clusters is None else [clusters[index] for index in kept]
    share = mean_interval([float(all(pairs[index])) for index in kept], names, level=level)
    return replace(share, low=2 * share.low / (1 + share.low), high=2 * share.high / (1 + share.high))


def _median_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    """Return two order statistics: the median is between them with at least this probability, for any distribution.

    With fewer than six documents, even the extremes include it less often.
    """
    numbers = to_float_array(values)
    if numbers is None or clusters is not None or np.isnan(numbers).any():
        return _bootstrap(name, values, clusters, level)
    size = len(numbers)
    if size < 5:
        return None
    ordered = np.sort(numbers)
    above = bisect_right(range(size // 2), (1 - level) / 2, key=lambda rank: binomial_cdf(rank, size, 0.5))
    rank = max(0, above - 1)
    return Interval(
        low=float(ordered[rank]), high=float(ordered[size - 1 - rank]), method="order statistics", level=level
    )


def _question_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    names: dict[Any, Any] = {}
    for index, (_, fields) in enumerate(values):
        names.setdefault(fields["idx"]["question"], None if clusters is None else clusters[index])
    known = None if clusters is None else list(names.values())
    return mean_interval(score_questions(values), known, level=level)


def _brier_interval(
    name: str, values: Sequence[Any], clusters: Clusters | None, level: float
) -> Interval | None:
    golds, probabilities = zip(*values, strict=True)
    table = np.array(probabilities, dtype=np.float64)
    errors = ((table - np.eye(table.shape[1])[list(golds)]) ** 2).sum(axis=1)
    return mean_interval(errors, clusters, level=level, limits=(0.0, 2.0))


def _bootstrap(name: str, values: Sequence[Any], clusters: Clusters | None, level: float) -> Interval | None:
    resamples = max(_MIN_RESAMPLES, _MIN_DRAWS // max(1, len(values)))
    found = bootstrap_interval(name, values, clusters, resamples=resamples, level=level)
    if found is None:
        return None
    low, high = _LIMITS.get(name, (-math.inf, math.inf))
    return replace(found, low=max(low, found.low), high=min(high, found.high))


_METHODS: dict[str, Method] = {
    "perplexity": _perplexity_interval,
    "nanmean": _nanmean_interval,
    "ratio": _ratio_interval,
    "weighted_perplexity": _ratio_interval,
    "bits_per_byte": _ratio_interval,
    "f1": _f1_interval,
    "median": _median_interval,
    "acc_all": _question_interval,
    "brier_score": _brier_interval,
}
