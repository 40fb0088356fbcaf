"""Several answers to each document: what sampling adds to the uncertainty, and numbers that only repeats have.

Scores are a table, a row for each document and a column for each repeat.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.core.verdicts import Repeated
from assay.stats.intervals import is_binary, mean_interval

__all__ = [
    "RepeatTable",
    "Repeats",
    "consistency",
    "majority_at_k",
    "majority_vote",
    "pass_at_k",
    "pass_hat_k",
    "repeat_numbers",
    "repeat_summary",
    "repeats_of",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """A mean over documents that were each asked several times, and where its variance comes from."""

    documents: int
    repeats: int
    mean: float
    stderr: float
    """Of the mean, over new documents and new answers."""

    between: float
    """Variance of the documents' own means, sampling noise taken off: what more documents would lessen."""

    within: float
    """Variance between answers to one document, on average: what more repeats would lessen."""

    def stderr_with(self, documents: int, repeats: int) -> float:
        """The standard error with other numbers of documents and repeats (Miller 2024, section 3.1)."""
        return math.sqrt((self.between + self.within / repeats) / documents)


def repeats_of(scores: ArrayLike) -> Repeats:
    """Mean, standard error and variance components of a table of scores.

    >>> found = repeats_of([[1, 1], [0, 0], [1, 0], [0, 1]])
    >>> found.mean, round(found.within, 4)
    (0.5, 0.25)
    """
    table = _table(scores)
    documents, repeats = table.shape
    means = table.mean(axis=1)
    spread = float(means.var(ddof=1)) if documents > 1 else 0.0
    within = float(table.var(axis=1, ddof=1).mean()) if repeats > 1 else 0.0
    return Repeats(
        documents=documents,
        repeats=repeats,
        mean=float(table.mean()),
        stderr=math.sqrt(spread / documents),
        between=max(0.0, spread - within / repeats),
        within=within,
    )


def pass_at_k(scores: ArrayLike, k: int) -> Floats:
    """For each document, the chance that at least one of k answers is right, without bias (Chen et al. 2021).

    >>> pass_at_k([[1, 0, 0, 0]], 2)
    array([0.5])
    """
    right, total = _counts(scores, k)
    return 1 - _choose_ratio(total - right, total, k)


def pass_hat_k(scores: ArrayLike, k: int) -> Floats:
    """For each document, the chance that all of k answers are right: what a user who comes back relies on (τ-bench).

    >>> pass_hat_k([[1, 1, 1, 0]], 2)
    array([0.5])
    """
    right, total = _counts(scores, k)
    return _choose_ratio(right, total, k)


def majority_at_k(scores: ArrayLike, k: int) -> Floats:
    """For each document, the chance that more than half of k answers are right; a tie counts half.

    >>> majority_at_k([[1, 1, 0]], 3)
    array([1.])
    """
    right, total = _counts(scores, k)
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
    """For each document, the score of the answer that was given most often; of several such, their mean.

    A right answer wins the vote also where less than half of the answers are right, if the wrong ones differ.

    >>> majority_vote([[1, 1, 0, 0, 0]], [["4", "4", "5", "6", "7"]])
    array([1.])
    """
    table, said = _table(scores), np.asarray(answers)
    if said.shape != table.shape:
        raise AssayError("a vote needs the answer of each score")
    votes = (said[:, :, None] == said[:, None, :]).sum(axis=2)
    wins = votes == votes.max(axis=1, keepdims=True)
    shares: Floats = (table * wins).sum(axis=1) / wins.sum(axis=1)
    return shares


def consistency(answers: ArrayLike) -> Floats:
    """For each document, the chance that two of its answers are the same. Takes scores, or answers of any kind.

    >>> consistency([["a", "a", "b"]]).round(4)
    array([0.3333])
    """
    table = np.asarray(answers)
    if table.ndim != 2 or table.shape[1] < 2:
        raise AssayError("consistency needs at least two answers to each document")
    same = (table[:, :, None] == table[:, None, :]).sum(axis=(1, 2)) - table.shape[1]
    pairs: Floats = same / (table.shape[1] * (table.shape[1] - 1))
    return pairs


def _table(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise AssayError("repeats are a table: a row for each document, a column for each repeat")
    return table


def _counts(scores: ArrayLike, k: int) -> tuple[NDArray[np.intp], int]:
    table = _table(scores)
    if not ((table == 0) | (table == 1)).all():
        raise AssayError("only answers that are right or wrong can be counted")
    total = table.shape[1]
    if not 1 <= k <= total:
        raise AssayError(f"k is {k}, and there are {total} answers to each document")
    return table.sum(axis=1).astype(np.intp), total


def _choose_ratio(some: NDArray[np.intp], total: int, k: int) -> Floats:
    """C(some, k) / C(total, k) as a product, which does not overflow; 0 where `some` is less than k."""
    steps = np.arange(k)
    ratios: Floats = (np.maximum(some[:, None] - steps, 0) / (total - steps)).prod(axis=1)
    return ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatTable:
    """The repeats of one metric: a row for each document, a column for each repeat."""

    documents: list[int]
    scores: Floats
    answers: NDArray[np.intp]
    """Which answers of a document are the same."""

    @classmethod
    def tables(cls, repeats: Iterable[Repeated]) -> dict[tuple[str, str], RepeatTable]:
        """The tables of a task by (pipeline, metric). Documents that were answered less often than most are left out."""
        found: dict[tuple[str, str], list[tuple[int, tuple[float, ...], tuple[int, ...]]]] = {}
        for one in repeats:
            for metric, scores in one.scores.items():
                if len(scores) > 1:
                    found.setdefault((one.pipeline, metric), []).append((one.document, scores, one.answers))
        made = {}
        for key, rows in found.items():
            ((usual, _),) = Counter(len(scores) for _, scores, _ in rows).most_common(1)
            kept = [row for row in rows if len(row[1]) == usual]
            made[key] = cls(
                documents=[document for document, _, _ in kept],
                scores=np.array([scores for _, scores, _ in kept], dtype=np.float64),
                answers=np.array([answers for _, _, answers in kept], dtype=np.intp),
            )
        return made


def repeat_numbers(table: RepeatTable) -> dict[str, Floats]:
    """Everything repeats say of each document, by name: the mean and the variance of its answers, the chance that one
    of k (`pass@k`) or each of k (`pass^k`) is right, the answer most often given (`maj@k`), how alike the answers are.

    >>> table = RepeatTable(documents=[0], scores=np.array([[1.0, 0.0]]), answers=np.array([[0, 1]]))
    >>> {name: float(values[0]) for name, values in repeat_numbers(table).items()}
    {'mean': 0.5, 'within': 0.5, 'consistency': 0.0, 'pass@2': 1.0, 'pass^2': 0.0, 'maj@2': 0.5}
    """
    scores, total = table.scores, table.scores.shape[1]
    numbers: dict[str, Floats] = {
        "mean": scores.mean(axis=1),
        "within": scores.var(axis=1, ddof=1),
        "consistency": consistency(table.answers),
    }
    if is_binary(scores):
        sizes = [*(2**power for power in range(1, 12) if 2**power < total), total]
        numbers |= {f"pass@{k}": pass_at_k(scores, k) for k in sizes}
        numbers |= {f"pass^{k}": pass_hat_k(scores, k) for k in sizes}
    numbers[f"maj@{total}"] = majority_vote(scores, table.answers)
    return numbers


def repeat_summary(table: RepeatTable) -> dict[str, Any]:
    """What the repeats of a metric come to: where the variance of its mean comes from, and each number over all
    documents with its standard error and interval (None where one document is all there is)."""
    whole = repeats_of(table.scores)
    limits = (0.0, 1.0) if is_binary(table.scores) else None
    numbers: dict[str, Any] = {}
    for name, values in repeat_numbers(table).items():
        if name == "within":
            continue
        several = len(values) > 1
        interval = mean_interval(values, limits=limits) if several else None
        numbers[name] = {
            "value": float(values.mean()),
            "stderr": float(values.std(ddof=1)) / math.sqrt(len(values)) if several else None,
            "interval": None if interval is None else [interval.low, interval.high],
        }
    return {
        "documents": whole.documents,
        "repeats": whole.repeats,
        "between": whole.between if whole.documents > 1 else None,
        "within": whole.within,
        "numbers": numbers,
    }
