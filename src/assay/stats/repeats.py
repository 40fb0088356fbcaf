"""Several answers to each document: what sampling adds to the uncertainty, and numbers that only repeats have.

Scores are a table, a row for each document and a column for each repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

__all__ = ["Repeats", "consistency", "majority_at_k", "pass_at_k", "pass_hat_k", "repeats_of"]

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
