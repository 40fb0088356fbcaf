"""Standard errors of a mean over documents that are not independent: several questions about one video.

After Miller, "Adding Error Bars to Evals" (arXiv 2411.00640), equation 4. Values are numbers, or mappings that hold the
number under `score_key` and the name of the cluster under `cluster_key`, as lmms-eval's tasks return them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.stats.sums import left_sum

__all__ = ["clustered_error", "plain_error", "scores_in"]


def scores_in(
    values: Iterable[Any], *, score_key: str = "score", cluster_key: str | None = None
) -> tuple[list[float], list[Any]]:
    """The numbers among some values, and the cluster each belongs to (None where it says none).

    >>> scores_in([1.0, {"score": 0.0, "video": "a"}, "text"], cluster_key="video")
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


def plain_error(scores: Sequence[float]) -> float | None:
    """The standard error of the mean if all documents were independent; None for fewer than two."""
    if len(scores) < 2:
        return None
    import numpy

    return float(numpy.std(scores, ddof=1) / numpy.sqrt(len(scores)))


def clustered_error(scores: Sequence[float], clusters: Sequence[Any]) -> float | None:
    """The standard error of the mean when documents of one cluster resemble each other; None for one cluster.

    >>> round(clustered_error([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"]), 4)
    0.3819
    """
    count = len(scores)
    if count < 2 or len({cluster for cluster in clusters if cluster is not None}) < 2:
        return None
    middle = left_sum(scores) / count
    independent = left_sum([(score - middle) ** 2 for score in scores]) / (count - 1) / count
    together: dict[Any, list[float]] = {}
    for score, cluster in zip(scores, clusters, strict=True):
        together.setdefault(cluster, []).append(score - middle)
    shared = left_sum(
        [left_sum(steps) ** 2 - left_sum([step * step for step in steps]) for steps in together.values()]
    )
    return math.sqrt(max(independent + shared / count**2, 0.0))
