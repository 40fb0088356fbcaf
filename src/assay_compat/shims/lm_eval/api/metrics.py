"""Shim for `lm_eval.api.metrics`: what task helpers take from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from assay.stats.numerics.exact_summation import mean

__all__ = ["mean", "metric_max_over_ground_truths"]


def metric_max_over_ground_truths(
    metric_fn: Callable[..., Any], prediction: Any, ground_truths: Iterable[Any]
) -> Any:
    """The best score a prediction gets against any of the references."""
    return max(metric_fn(prediction, truth) for truth in ground_truths)
