"""Means over documents and prompt variants, with an interval that includes the spread between prompts.

Scores are a table with a row per document and a column per variant. Documents and variants are crossed random effects: the
interval is that of the mean over other documents and other variants of the same kind.

    score = mean + document + variant + rest

The documents' part of the interval is that of the mean with documents (or clusters of documents) as clusters, so it also fits
few documents and means near 0 and 1. The variants' part is Student's t with the number of variants less one as degrees of
freedom. The distances of both parts from the mean are combined (MOVER, Zou and Donner 2008): Satterthwaite's approximation has
too few wide intervals for three to five variants. `benchmarks/CROSSED_INTERVALS.md` shows the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import (
    Interval,
    Limits,
    encode_clusters,
    is_binary,
    mean_interval,
)
from assay.stats.numerics.distributions import t_quantile

__all__ = [
    "CrossedEstimate",
    "compute_stability",
    "crossed_interval",
    "estimate_crossed",
    "score_consistency_rate",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedEstimate:
    """Mean, standard error and variance components of a table of documents and variants."""

    documents: int
    variants: int
    mean: float
    stderr: float
    """Standard error of the mean for other documents and other variants."""

    document_stderr: float
    """The part of the documents: the standard error for the same variants."""

    variant_deviation: float
    """Standard deviation between variants, without the part that comes from the sample of documents."""

    interval: Interval | None
    """None if there is no method: a single document, or equal scores without a known range."""

    means: tuple[float, ...]
    """The mean of each variant."""

    document_interval: Interval | None
    """The interval for the same variants; None as for `interval`."""

    reaction: float
    """Variance of the mean of a variant, because documents react to it differently."""

    limits: Limits | None
    """The range of possible scores; None if unknown."""


def estimate_crossed(
    scores: ArrayLike,
    clusters: Sequence[Any] | None = None,
    *,
    level: float = 0.95,
    limits: Limits | None = None,
) -> CrossedEstimate:
    """Estimate the mean of a table of scores: a row per document, a column per variant.

    >>> found = estimate_crossed([[1, 1], [0, 0], [1, 0], [1, 0]])
    >>> found.mean, found.means, round(found.variant_deviation, 3)
    (0.5, (0.75, 0.25), 0.289)
    """
    table = _to_table(scores)
    documents, variants = table.shape
    document_variance, variant_variance, reaction = _compute_components(table, clusters)
    interval = inner = None
    with suppress(AssayError):
        inner = _document_interval(table, clusters, level=level, limits=limits)
        interval = crossed_interval(table, clusters, level=level, limits=limits)
    return CrossedEstimate(
        documents=documents,
        variants=variants,
        mean=float(table.mean()),
        stderr=math.sqrt(document_variance + variant_variance),
        document_stderr=math.sqrt(document_variance),
        variant_deviation=math.sqrt(variant_variance * variants),
        interval=interval,
        means=tuple(table.mean(axis=0).tolist()),
        document_interval=inner,
        reaction=reaction,
        limits=(0.0, 1.0) if limits is None and is_binary(table) else limits,
    )


def crossed_interval(
    scores: ArrayLike,
    clusters: Sequence[Any] | None = None,
    *,
    level: float = 0.95,
    limits: Limits | None = None,
) -> Interval:
    """Return the interval of the mean of scores over other documents and other variants; for differences of two models see
    `compare_crossed_pairs`.

    Raises:
        AssayError: There are fewer than two documents or variants, or equal scores without a known range.
    """
    table = _to_table(scores)
    variants = table.shape[1]
    if variants < 2:
        raise AssayError("an interval over variants needs at least two variants")
    mean = float(table.mean())
    inner = _document_interval(table, clusters, level=level, limits=limits)
    _, variant_variance, _ = _compute_components(table, clusters)
    half = t_quantile((1 + level) / 2, variants - 1) * math.sqrt(variant_variance)
    low, high = mean - math.hypot(mean - inner.low, half), mean + math.hypot(inner.high - mean, half)
    if limits is None and is_binary(table):
        limits = (0.0, 1.0)
    if limits is not None:
        low, high = max(low, limits[0]), min(high, limits[1])
    return Interval(low=low, high=high, method="documents × variants", level=level)


def compute_stability(answers: ArrayLike) -> Floats:
    """Return the share of variants that agree with the most frequent answer, per document. Accepts scores and answers.

    >>> compute_stability([["a", "a", "b", "a"], [1, 0, 1, 0]])
    array([0.75, 0.5 ])
    """
    table = np.asarray(answers)
    same = (table[:, :, None] == table[:, None, :]).sum(axis=2)
    shares: Floats = same.max(axis=1) / table.shape[1]
    return shares


def score_consistency_rate(answers: ArrayLike) -> float:
    """Return the consistency rate of SCORE: the share of pairs of variants with equal answers, over all documents.

    >>> score_consistency_rate([["a", "a", "b"], ["c", "c", "c"]])
    0.6666666666666666
    """
    table = np.asarray(answers)
    variants = int(table.shape[1])
    pairs = int((table[:, :, None] == table[:, None, :]).sum()) - int(table.size)
    return pairs / (len(table) * variants * (variants - 1))


def _document_interval(
    table: Floats, clusters: Sequence[Any] | None, *, level: float, limits: Limits | None
) -> Interval:
    documents, variants = table.shape
    if is_binary(table) and limits in (None, (0.0, 1.0)):
        codes = np.arange(documents) if clusters is None else encode_clusters(clusters)[0]
        return mean_interval(table.ravel(), np.repeat(codes, variants), level=level)
    return mean_interval(table.mean(axis=1), clusters, level=level, limits=limits)


def _compute_components(table: Floats, clusters: Sequence[Any] | None) -> tuple[float, float, float]:
    """Return the parts of documents and of variants in the variance of the mean, and the variance of a variant's mean that
    belongs to the documents.

    The mean of a variant varies because of the variant and because documents react to it differently. The second part
    belongs to the documents and is subtracted. Clusters of documents react together.
    """
    documents, variants = table.shape
    mean, by_variant = table.mean(), table.mean(axis=0)
    codes, count = (np.arange(documents), documents) if clusters is None else encode_clusters(clusters)
    if count < 2:
        return 0.0, float(by_variant.var(ddof=1)) / variants if variants > 1 else 0.0, 0.0
    steps = table - mean
    rows = np.bincount(codes, weights=steps.mean(axis=1), minlength=count)
    correction = count / (count - 1) / documents**2
    document_part = float((rows * rows).sum()) * correction
    if variants < 2:
        return document_part, 0.0, 0.0
    rest = table - table.mean(axis=1, keepdims=True) - by_variant + mean
    sums = np.stack([np.bincount(codes, weights=column, minlength=count) for column in rest.T])
    reaction = float((sums * sums).sum()) * correction / (variants - 1)
    return document_part, max(0.0, float(by_variant.var(ddof=1)) - reaction) / variants, reaction


def _to_table(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise AssayError(
            "scores of variants must be a table with a row per document and a column per variant"
        )
    return table
