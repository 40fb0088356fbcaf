"""Shim for `lm_eval.api.registry`: decorators that register with Assay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from assay.core.registry import Registry
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS, Metric
from assay.stats.aggregations import AGGREGATIONS

__all__ = [
    "get_aggregation",
    "get_filter",
    "get_metric",
    "get_model",
    "register_aggregation",
    "register_filter",
    "register_group",
    "register_metric",
    "register_model",
    "register_task",
]

T = TypeVar("T")


def _keep(registry: Registry[Any], name: str, item: Any) -> None:
    registry.add(
        name, item, replace=True
    )  # task code is loaded again when its file changes; the newest counts


def register_filter(name: str) -> Callable[[T], T]:
    """Register a filter class (decorator)."""

    def keep(item: T) -> T:
        _keep(FILTERS, name, item)
        return item

    return keep


def register_aggregation(name: str) -> Callable[[T], T]:
    """Register an aggregation function (decorator)."""

    def keep(item: T) -> T:
        _keep(AGGREGATIONS, name, item)
        return item

    return keep


def register_metric(**details: Any) -> Callable[[T], T]:
    """Register a metric function with its aggregation and direction (decorator)."""

    def keep(item: T) -> T:
        outputs = details.get("output_type", ())
        metric = Metric(
            name=details["metric"],
            function=item,  # type: ignore[arg-type]
            aggregation=details.get("aggregation", "mean"),
            higher_is_better=bool(details.get("higher_is_better", True)),
            output_types=(outputs,) if isinstance(outputs, str) else tuple(outputs or ()),
        )
        _keep(METRICS, details["metric"], metric)
        return item

    return keep


def register_model(*names: str) -> Callable[[T], T]:
    """Register a model class (decorator) for `--model`."""

    def keep(item: T) -> T:
        from assay_compat.models.registry import register_class  # most helper files define no model

        register_class(item, *names)  # type: ignore[arg-type]
        return item

    return keep


def register_task(*names: str) -> Callable[[T], T]:
    """Keep a task class (decorator of lm_eval 0.4.0 and 0.4.1). The names are read from the file without running it."""
    return lambda item: item


register_group = register_task


def get_model(model_name: str) -> Any:
    """Return a model class by name."""
    from assay_compat.models.registry import get_model_class

    return get_model_class(model_name)


def get_filter(name: str) -> Any:
    """Return a filter class by name; return a class unchanged."""
    return name if callable(name) else FILTERS.get(name)


def get_metric(name: str, hf_evaluate_metric: bool = False) -> Any:
    """Return a metric function by name."""
    return METRICS.get(name).function


def get_aggregation(name: str) -> Any:
    """Return an aggregation function by name."""
    return AGGREGATIONS.get(name)
