"""Metrics and variance components of repeated answers.

Scores are a table with a row per document and a column per repeat.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.core.records.verdicts import RepeatScores
from assay.stats.intervals.confidence_intervals import (
    Interval,
    Limits,
    encode_clusters,
    is_binary,
    mean_interval,
)

__all__ = [
    "RepeatTable",
    "RepeatVariance",
    "analyse_repeats",
    "compute_consistency",
    "compute_repeat_metrics",
    "majority_at_k",
    "majority_vote",
    "pass_at_k",
    "pass_hat_k",
    "summarise_repeats",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatVariance:
    """Mean and variance components over documents with repeated answers."""

    documents: int
    repeats: int
    mean: float
    stderr: float
    """Standard error of the mean for new documents and new answers."""

    between: float
    """Variance between documents without sampling noise; more documents reduce its contribution."""

    within: float
    """Mean variance between answers to one document; more repeats reduce its contribution."""


def analyse_repeats(scores: ArrayLike) -> RepeatVariance:
    """Return mean, standard error and variance components of a table of scores.

    >>> found = analyse_repeats([[1, 1], [0, 0], [1, 0], [0, 1]])
    >>> found.mean, round(found.within, 4)
    (0.5, 0.25)
    """
    table = _to_table(scores)
    documents, repeats = table.shape
    means = table.mean(axis=1)
    spread = float(means.var(ddof=1)) if documents > 1 else 0.0
    within = float(table.var(axis=1, ddof=1).mean()) if repeats > 1 else 0.0
    return RepeatVariance(
        documents=documents,
        repeats=repeats,
        mean=float(table.mean()),
        stderr=math.sqrt(spread / documents),
        between=max(0.0, spread - within / repeats),
        within=within,
    )


def pass_at_k(scores: ArrayLike, k: int) -> Floats:
    """Return the unbiased probability that at least one of k answers is correct, per document (Chen et al. 2021).

    >>> pass_at_k([[1, 0, 0, 0]], 2)
    array([0.5])
    """
    right, total = _count_correct(scores, k)
    return 1 - _choose_ratio(total - right, total, k)


def pass_hat_k(scores: ArrayLike, k: int) -> Floats:
    """Return the probability that all of k answers are correct, per document (τ-bench).

    >>> pass_hat_k([[1, 1, 1, 0]], 2)
    array([0.5])
    """
    right, total = _count_correct(scores, k)
    return _choose_ratio(right, total, k)


def majority_at_k(scores: ArrayLike, k: int) -> Floats:
    """Return the probability that most of k answers are correct, per document; a tie counts half.

    >>> majority_at_k([[1, 1, 0]], 3)
    array([1.])
    """
    right, total = _count_correct(scores, k)
    whole = math.comb(total, k)
    by_count = np.zeros(total + 1)
    for count in range(total + 1):
        ways = 0.0
        for chosen in range(max(0, k - (total - count)), min(k, count) + 1):
            share = 1.0 if 2 * chosen > k else 0.5 if 2 * chosen == k else 0.0
            ways += share * math.comb(count, chosen) * math.comb(total - count, k - chosen)
        by_count[count] = ways / whole
    return by_count[right]


def majority_vote(scores: ArrayLike, answers: ArrayLike) -> Floats:
    """Return the score of the most frequent answer per document; the mean for ties.

    A correct answer can win with less than half of the votes if the wrong answers differ.

    >>> majority_vote([[1, 1, 0, 0, 0]], [["4", "4", "5", "6", "7"]])
    array([1.])
    """
    table, given = _to_table(scores), np.asarray(answers)
    if given.shape != table.shape:
        raise AssayError("a majority vote needs one answer per score")
    votes = (given[:, :, None] == given[:, None, :]).sum(axis=2)
    wins = votes == votes.max(axis=1, keepdims=True)
    shares: Floats = (table * wins).sum(axis=1) / wins.sum(axis=1)
    return shares


def compute_consistency(answers: ArrayLike) -> Floats:
    """Return the probability that two answers are equal, per document. Accepts scores or answers of any type.

    >>> compute_consistency([["a", "a", "b"]]).round(4)
    array([0.3333])
    """
    table = np.asarray(answers)
    if table.ndim != 2 or table.shape[1] < 2:
        raise AssayError("consistency needs at least two answers to each document")
    same = (table[:, :, None] == table[:, None, :]).sum(axis=(1, 2)) - table.shape[1]
    pairs: Floats = same / (table.shape[1] * (table.shape[1] - 1))
    return pairs


def _to_table(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise AssayError("repeats must be a table with a row per document and a column per repeat")
    return table


def _count_correct(scores: ArrayLike, k: int) -> tuple[NDArray[np.intp], int]:
    table = _to_table(scores)
    if not ((table == 0) | (table == 1)).all():
        raise AssayError("scores must be 0 or 1 (right or wrong)")
    total = table.shape[1]
    if not 1 <= k <= total:
        raise AssayError(f"k is {k}, but there are {total} answers per document")
    return table.sum(axis=1).astype(np.intp), total


def _choose_ratio(some: NDArray[np.intp], total: int, k: int) -> Floats:
    """Return C(some, k) / C(total, k) as a product, which does not overflow."""
    steps = np.arange(k)
    ratios: Floats = (np.maximum(some[:, None] - steps, 0) / (total - steps)).prod(axis=1)
    return ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatTable:
    """The repeat scores of one metric: a row per document and a column per repeat."""

    documents: list[int]
    scores: Floats
    answers: NDArray[np.intp]
    """Equal numbers mean equal answers of a document."""

    judge_samples: Floats | None = None
    """The scores of the samples of judges: a third axis. None unless every answer has the same number of them, at least 2."""

    @classmethod
    def build_tables(cls, repeats: Iterable[RepeatScores]) -> dict[tuple[str, str], RepeatTable]:
        """Return the tables of a task by (pipeline, metric). Documents with another number of repeats than most are dropped."""
        found: dict[tuple[str, str], list[tuple[int, tuple[float, ...], tuple[int, ...]]]] = {}
        samples: dict[tuple[str, str, int], tuple[tuple[float, ...], ...]] = {}
        for one in repeats:
            for metric, scores in one.scores.items():
                if len(scores) > 1:
                    found.setdefault((one.pipeline, metric), []).append((one.document, scores, one.answers))
                if metric in one.judge_samples:
                    samples[one.pipeline, metric, one.document] = one.judge_samples[metric]
        tables = {}
        for key, rows in found.items():
            ((usual, _),) = Counter(len(scores) for _, scores, _ in rows).most_common(1)
            complete = [row for row in rows if len(row[1]) == usual]
            tables[key] = cls(
                documents=[document for document, _, _ in complete],
                scores=np.array([scores for _, scores, _ in complete], dtype=np.float64),
                answers=np.array([answers for _, _, answers in complete], dtype=np.intp),
                judge_samples=_stack_samples([samples.get((*key, document)) for document, _, _ in complete]),
            )
        return tables


def _stack_samples(samples: Sequence[tuple[tuple[float, ...], ...] | None]) -> Floats | None:
    known = [one for one in samples if one is not None]
    shapes = {tuple(len(attempt) for attempt in one) for one in known}
    if not known or len(known) < len(samples) or len(shapes) > 1 or len(set(shapes.pop())) > 1:
        return None
    return np.array(known, dtype=np.float64)


def compute_repeat_metrics(table: RepeatTable) -> dict[str, Floats]:
    """Return the repeat metrics of each document by name: `mean`, `within` (variance), `consistency`, `pass@k` (one of k
    answers is correct), `pass^k` (all k are correct) and `maj@k` (majority vote).

    >>> table = RepeatTable(documents=[0], scores=np.array([[1.0, 0.0]]), answers=np.array([[0, 1]]))
    >>> {name: float(values[0]) for name, values in compute_repeat_metrics(table).items()}
    {'mean': 0.5, 'within': 0.5, 'consistency': 0.0, 'pass@2': 1.0, 'pass^2': 0.0, 'maj@2': 0.5}
    """
    scores, total = table.scores, table.scores.shape[1]
    numbers: dict[str, Floats] = {
        "mean": scores.mean(axis=1),
        "within": scores.var(axis=1, ddof=1),
        "consistency": compute_consistency(table.answers),
    }
    if is_binary(scores):
        sizes = [*(2**power for power in range(1, 12) if 2**power < total), total]
        numbers |= {f"pass@{k}": pass_at_k(scores, k) for k in sizes}
        numbers |= {f"pass^{k}": pass_hat_k(scores, k) for k in sizes}
    numbers[f"maj@{total}"] = majority_vote(scores, table.answers)
    return numbers


def summarise_repeats(table: RepeatTable, clusters: Mapping[int, Any] | None = None) -> dict[str, Any]:
    """Return the variance components and all repeat metrics over all documents, with standard errors and intervals (None
    for a single document or cluster). Intervals are clustered by the clusters of the documents."""
    whole = analyse_repeats(table.scores)
    limits = (0.0, 1.0) if is_binary(table.scores) else None
    names = None if clusters is None else [clusters.get(document) for document in table.documents]
    count = len(table.documents) if names is None else encode_clusters(names)[1]
    numbers: dict[str, Any] = {}
    for name, values in compute_repeat_metrics(table).items():
        if name == "within":
            continue
        several = len(values) > 1
        interval = _find_interval(values, names, limits) if count > 1 else None
        numbers[name] = {
            "value": float(values.mean()),
            "stderr": float(values.std(ddof=1)) / math.sqrt(len(values)) if several else None,
            "interval": None if interval is None else [interval.low, interval.high],
            "interval_method": "" if interval is None else interval.method,
        }
    return {
        "documents": whole.documents,
        "repeats": whole.repeats,
        "clusters": count if count < whole.documents else None,
        "between": whole.between if whole.documents > 1 else None,
        "within": whole.within,
        "numbers": numbers,
    }


def _find_interval(values: Floats, clusters: Sequence[Any] | None, limits: Limits | None) -> Interval | None:
    try:
        return mean_interval(values, clusters, limits=limits)
    except AssayError:  # equal scores without a known range
        return None
