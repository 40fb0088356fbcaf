"""Metrics: the scores that `metric_list` of a task can name.

A metric scores one document. Assay calls it with the keywords `references` and `predictions`, two lists of equal
length. A metric that does not accept these keywords gets one pair `[reference, prediction]`; corpus metrics return that
pair for their aggregation. `assay.scoring.likelihoods` computes the metrics of log-probabilities (`acc`, `perplexity`,
…); their entries here define the aggregation and whether higher is better.

To add a metric, add a file to this folder and register the function with `@metric("name")`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.core.errors import InvalidOption
from assay.core.registry import Registry

__all__ = ["METRICS", "Metric", "metric"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with its defaults."""

    name: str
    function: Callable[..., Any]
    aggregation: str = "mean"
    higher_is_better: bool = True
    output_types: tuple[str, ...] = ()
    """The output types it supports. Empty: any."""

    @property
    def about(self) -> str:
        """A description for lists."""
        better = "higher" if self.higher_is_better else "lower"
        kinds = f", for {' and '.join(self.output_types)}" if self.output_types else ""
        return f"{self.aggregation} over documents, {better} is better{kinds}"


METRICS: Registry[Metric] = Registry("metric", builtin_package="assay.scoring.metrics")
"""Every metric that `metric_list` can name. Each module of this folder registers its metrics."""


def metric(
    name: str, *, aggregation: str = "mean", higher_is_better: bool = True, output_types: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Return a decorator that registers a function as a metric.

    >>> @metric("shouting", higher_is_better=False)
    ... def shouting(*, references, predictions):
    ...     return float(predictions[0].isupper())
    >>> METRICS.get("shouting").aggregation
    'mean'
    """

    def register(function: F) -> F:
        if name in METRICS:
            owners = _origin(METRICS.get(name).function), _origin(function)
            if owners[0] != owners[1]:
                raise InvalidOption(
                    f"two metrics are called `{name}`: {owners[0]} and {owners[1]}", hint="rename one of them"
                )
        METRICS.add(
            name,
            Metric(
                name=name,
                function=function,
                aggregation=aggregation,
                higher_is_better=higher_is_better,
                output_types=output_types,
            ),
        )
        return function

    return register


def _origin(function: Callable[..., Any]) -> str:
    """Return where a function is defined, so that loading it twice is not a conflict."""
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
