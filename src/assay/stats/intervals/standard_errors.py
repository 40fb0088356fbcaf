"""Standard errors of aggregations: by formula if there is one, else by bootstrap, else None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from assay.stats.aggregations import Aggregation, find_aggregation_name, score_questions
from assay.stats.intervals.bootstrap import BOOTSTRAP_AGGREGATIONS, compute_bootstrap_error
from assay.stats.intervals.resampling import compute_fast_replicates
from assay.stats.numerics.exact_summation import compute_mean_error
from assay.stats.translation import TRANSLATION_AGGREGATIONS

__all__ = ["Draws", "Method", "compute_standard_error"]

Method = Literal["", "mean", "bootstrap"]
Draws = Literal["lm_eval", "own"]

_MAX_TRANSLATION_RESAMPLES = 100


def compute_standard_error(
    aggregation: str | Aggregation,
    values: Sequence[Any],
    *,
    metric: str,
    iterations: int,
    draws: Draws = "lm_eval",
) -> tuple[float | None, Method]:
    """Return the standard error of `aggregate(aggregation, values)` and its method.

    Metrics *named* bleu, chrf, chrf++ or ter have at most 100 resamples, whatever their aggregation, as in published
    results. `iterations=0` disables standard errors. `draws="own"` uses faster resamples than those of lm-eval if possible.

    >>> compute_standard_error("mean", [0.0, 1.0], metric="acc", iterations=100_000)
    (0.5, 'mean')
    >>> compute_standard_error("bits_per_byte", [(-1.0, 2), (-1.0, 2)], metric="bits_per_byte", iterations=100_000)
    (None, '')
    """
    name = find_aggregation_name(aggregation)
    if name is None or iterations <= 0 or len(values) < 2:
        return None, ""
    if name == "mean":
        return compute_mean_error(values), "mean"
    if name == "acc_all":
        questions = score_questions(values)
        return (compute_mean_error(questions), "mean") if len(questions) > 1 else (None, "")
    if name in BOOTSTRAP_AGGREGATIONS:
        allowed = (
            min(iterations, _MAX_TRANSLATION_RESAMPLES) if metric in TRANSLATION_AGGREGATIONS else iterations
        )
        own = compute_fast_replicates(name, values, allowed) if draws == "own" and allowed > 1 else None
        error = compute_bootstrap_error(name, values, allowed) if own is None else float(own.std(ddof=1))
        return error, "bootstrap" if error is not None else ""
    return None, ""
