"""Split the variance of agent scores into the contributions of the task, the agent, the simulated user and the judge.

A nested design: documents, seeds of the user within a document, attempts of the agent with the same user, and samples of the
judge for one attempt. Each component is estimated from its own level; what no level repeats cannot be separated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

__all__ = ["VarianceComponents", "split_variance"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceComponents:
    """Variances of a single score. None: not separable, so it is part of the component named in `includes`."""

    task: float | None
    """Between documents; None for a single document."""

    user: float | None
    agent: float
    judge: float | None
    total: float
    includes: dict[str, str]
    """Component -> the component that contains it, for those that are None although they exist."""


def split_variance(
    scores: ArrayLike,
    *,
    user_seeds: Sequence[int] | None = None,
    judge_samples: ArrayLike | None = None,
    has_user: bool = False,
    has_judge: bool = False,
) -> VarianceComponents:
    """Estimate the components from a table with a row per document and a column per attempt.

    `user_seeds`: the seed of the user in each attempt. `judge_samples`: scores of the judge by document, attempt and sample.
    Estimates below 0, which chance can give, are 0.

    >>> found = split_variance([[1, 1, 0, 0], [1, 1, 0, 0]], user_seeds=[0, 0, 1, 1], has_user=True)
    >>> found.user, found.agent, found.task
    (0.5, 0.0, 0.0)
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise AssayError("the variance is split over documents with at least two attempts")
    documents, attempts = table.shape
    judge, noise = _estimate_judge(judge_samples, table.shape)
    includes = {"judge": "agent"} if has_judge and judge is None else {}
    groups = _group_columns(user_seeds, attempts)
    separable = groups is not None and 1 < len(groups) < attempts
    user = None
    if separable and groups is not None:
        within, between, size = _analyse_groups(table, groups)
        agent = within - noise
        user = max(0.0, (between - within) / size)
    else:
        agent = float(table.var(axis=1, ddof=1).mean()) - noise
        if has_user:
            includes["user"] = "agent"
    agent = max(0.0, agent)
    task = None
    if documents > 1:
        if separable and groups is not None:
            shares = np.array([len(columns) for columns in groups]) / attempts
            per_document = (user or 0.0) * float((shares**2).sum()) + (agent + noise) / attempts
        else:
            per_document = float(table.var(axis=1, ddof=1).mean()) / attempts
        task = max(0.0, float(table.mean(axis=1).var(ddof=1)) - per_document)
    total = sum(part or 0.0 for part in (task, user, agent, judge))
    return VarianceComponents(task=task, user=user, agent=agent, judge=judge, total=total, includes=includes)


def _estimate_judge(samples: ArrayLike | None, shape: tuple[int, ...]) -> tuple[float | None, float]:
    """Return the variance of one sample of the judge, and what it adds to the variance of a score (a mean of samples)."""
    if samples is None:
        return None, 0.0
    given: Floats = np.asarray(samples, dtype=np.float64)
    if given.ndim != 3 or given.shape[:2] != tuple(shape) or given.shape[2] < 2:
        return None, 0.0
    judge = float(given.var(axis=2, ddof=1).mean())
    return judge, judge / given.shape[2]


def _group_columns(seeds: Sequence[int] | None, attempts: int) -> list[list[int]] | None:
    if seeds is None or len(seeds) != attempts:
        return None
    return [[index for index, seed in enumerate(seeds) if seed == one] for one in dict.fromkeys(seeds)]


def _analyse_groups(table: Floats, groups: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """Return the mean squares within and between user seeds, and the effective number of attempts per seed."""
    attempts, sizes = table.shape[1], np.array([len(columns) for columns in groups], dtype=np.float64)
    means = np.stack([table[:, list(columns)].mean(axis=1) for columns in groups], axis=1)
    squares = sum(
        ((table[:, list(columns)] - means[:, [index]]) ** 2).sum(axis=1)
        for index, columns in enumerate(groups)
    )
    within = float((squares / (attempts - len(groups))).mean())
    whole = table.mean(axis=1, keepdims=True)
    between = float(((sizes * (means - whole) ** 2).sum(axis=1) / (len(groups) - 1)).mean())
    size = float((attempts - (sizes**2).sum() / attempts) / (len(groups) - 1))
    return within, between, size
