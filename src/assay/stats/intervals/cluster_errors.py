"""Standard errors of a mean over clustered documents, such as several questions about one video.

Equation 4 of Miller, "Adding Error Bars to Evals" (arXiv 2411.00640). Values are numbers, or mappings with the score
under `score_key` and the cluster under `cluster_key`, as tasks of lmms-eval return them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.stats.numerics.exact_summation import sum_left_to_right

__all__ = ["compute_lmms_eval_cluster_error", "compute_plain_error", "extract_scores"]


def extract_scores(
    values: Iterable[Any], *, score_key: str = "score", cluster_key: str | None = None
) -> tuple[list[float], list[Any]]:
    """Return the scores among some values and the cluster of each (None if there is none).

    >>> extract_scores([1.0, {"score": 0.0, "video": "a"}, "text"], cluster_key="video")
    ([1.0, 0.0], [None, 'a'])
    """
    scores: list[float] = []
    clusters: list[Any] = []
    for value in values:
        if isinstance(value, (int, float)):
            scores.append(value)
            clusters.append(None)
        elif isinstance(value, Mapping) and score_key in value:
            scores.append(value[score_key])
            clusters.append(value.get(cluster_key) if cluster_key else None)
    return scores, clusters


def compute_plain_error(scores: Sequence[float]) -> float | None:
    """Return the standard error of the mean of independent documents; None for fewer than two."""
    if len(scores) < 2:
        return None
    import numpy

    return float(numpy.std(scores, ddof=1) / numpy.sqrt(len(scores)))


def compute_lmms_eval_cluster_error(scores: Sequence[float], clusters: Sequence[Any]) -> float | None:
    """Return the clustered standard error of the mean; None for fewer than two clusters.

    >>> round(compute_lmms_eval_cluster_error([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"]), 4)
    0.3819
    """
    count = len(scores)
    if count < 2 or len({cluster for cluster in clusters if cluster is not None}) < 2:
        return None
    center = sum_left_to_right(scores) / count
    independent = sum_left_to_right([(score - center) ** 2 for score in scores]) / (count - 1) / count
    deviations: dict[Any, list[float]] = {}
    for score, cluster in zip(scores, clusters, strict=True):
        deviations.setdefault(cluster, []).append(score - center)
    shared = sum_left_to_right(
        [
            sum_left_to_right(steps) ** 2 - sum_left_to_right([step * step for step in steps])
            for steps in deviations.values()
        ]
    )
    return math.sqrt(max(independent + shared / count**2, 0.0))
