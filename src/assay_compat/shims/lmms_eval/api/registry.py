"""Shim for `lmms_eval.api.registry`: the same decorators as lm_eval's."""

from __future__ import annotations

from assay_compat.shims.lm_eval.api.registry import (
    get_aggregation,
    get_filter,
    get_metric,
    register_aggregation,
    register_filter,
    register_group,
    register_metric,
    register_model,
    register_task,
)

__all__ = [
    "get_aggregation",
    "get_filter",
    "get_metric",
    "register_aggregation",
    "register_filter",
    "register_group",
    "register_metric",
    "register_model",
    "register_task",
]
