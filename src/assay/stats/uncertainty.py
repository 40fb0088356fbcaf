"""How sure an aggregated number is: a formula where there is one, a bootstrap where not, else nothing.

Never a made-up 0: an aggregation nobody has a method for, or fewer than two documents, gives None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from assay.stats.aggregations import Aggregation, acc_all_marks, aggregation_name
from assay.stats.bootstrap import RESAMPLED, bootstrap_error
from assay.stats.resampling import own_replicates
from assay.stats.sums import mean_error
from assay.stats.translation import TRANSLATION

__all__ = ["Draws", "Method", "standard_error"]

Method = Literal["", "mean", "bootstrap"]
Draws = Literal["lm_eval", "own"]

_MOST_FOR_TRANSLATION = 100


def standard_error(
    aggregation: str | Aggregation,
    values: Sequence[Any],
    *,
    metric: str,
    iterations: int,
    draws: Draws = "lm_eval",
) -> tuple[float | None, Method]:
    """The standard error of `aggregate(aggregation, values)` and how it was found.

    Metrics *called* bleu, chrf, chrf++ or ter get at most 100 resamples, whatever their aggregation: the
    published numbers depend on it. `iterations=0` switches standard errors off. `draws="own"` does not repeat
    lm-eval's draws where the same can be had without drawing every document.

    >>> standard_error("mean", [0.0, 1.0], metric="acc", iterations=100_000)
    (0.5, 'mean')
    >>> standard_error("bits_per_byte", [(-1.0, 2), (-1.0, 2)], metric="bits_per_byte", iterations=100_000)
    (None, '')
    """
    name = aggregation_name(aggregation)
    if name is None or iterations <= 0 or len(values) < 2:
        return None, ""
    if name == "mean":
        return mean_error(values), "mean"
    if name == "acc_all":
        marks = acc_all_marks(values)
        return (mean_error(marks), "mean") if len(marks) > 1 else (None, "")
    if name in RESAMPLED:
        allowed = min(iterations, _MOST_FOR_TRANSLATION) if metric in TRANSLATION else iterations
        own = own_replicates(name, values, allowed) if draws == "own" and allowed > 1 else None
        error = bootstrap_error(name, values, allowed) if own is None else float(own.std(ddof=1))
        return error, "bootstrap" if error is not None else ""
    return None, ""
