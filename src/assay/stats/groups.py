"""The score of a group of tasks, from the scores of its tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.stats.sums import left_sum

__all__ = ["Part", "pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task, or the whole group, reports under one metric."""

    value: float
    stderr: float | None
    size: int
    """Documents of the task."""


def pool(parts: Sequence[Part], *, weight_by_size: bool = True, pooled_error: bool | None = None) -> Part:
    """One number for several tasks.

    `weight_by_size` counts every document alike, otherwise every task. The standard error belongs to the mean
    that is taken: the pooled one for documents, that of k independent means for tasks. Before 0.4.13
    lm-evaluation-harness gave the pooled one in both cases, as `pooled_error=True` does.

    >>> pool([Part(value=1.0, stderr=None, size=3), Part(value=0.0, stderr=None, size=1)]).value
    0.75
    """
    if not parts:
        raise AssayError("no task of the group reports this metric, so there is nothing to pool")
    weights = [part.size if weight_by_size else 1 for part in parts]
    value = left_sum([part.value * weight for part, weight in zip(parts, weights, strict=True)]) / sum(
        weights
    )
    pooled = weight_by_size if pooled_error is None else pooled_error
    return Part(
        value=value,
        stderr=_pooled_error(parts) if pooled else _error_of_means(parts),
        size=sum(part.size for part in parts),
    )


def _pooled_error(parts: Sequence[Part]) -> float | None:
    """From the pooled variance of all documents; None when a task has no standard error."""
    size = sum(part.size for part in parts)
    if size <= len(parts):
        return None
    terms = []
    for part in parts:
        if part.stderr is None:
            return None
        terms.append((part.size - 1) * part.stderr**2 * part.size)
    return math.sqrt(left_sum(terms) / (size - len(parts)) / size)


def _error_of_means(parts: Sequence[Part]) -> float | None:
    """Of the plain mean of independent means; None when a task has no standard error."""
    squares = []
    for part in parts:
        if part.stderr is None:
            return None
        squares.append(part.stderr**2)
    return math.sqrt(left_sum(squares)) / len(parts)
