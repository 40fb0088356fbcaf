"""What an answer is worth: the metrics a task's `metric_list` can name.

A metric judges one document. It is called with the keywords `references` and `predictions`, lists as long as there
are references, or, when it does not take those, with one pair `[reference, prediction]`: corpus metrics keep
that pair for their aggregation. What likelihood tasks report (`acc`, `perplexity`, …) is computed from the
log-probabilities in `assay.scoring.likelihoods`; their entries here carry the aggregation and the direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.core.errors import BadOption
from assay.core.registry import Registry

__all__ = ["METRICS", "Metric", "metric"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and what a task file may leave unsaid about it."""

    name: str
    function: Callable[..., Any]
    aggregation: str = "mean"
    higher_is_better: bool = True
    output_types: tuple[str, ...] = ()
    """The kinds of task it is meant for; empty: any."""

    @property
    def about(self) -> str:
        """What a list says of it."""
        better = "higher" if self.higher_is_better else "lower"
        kinds = f", for {' and '.join(self.output_types)}" if self.output_types else ""
        return f"{self.aggregation} over documents, {better} is better{kinds}"


METRICS: Registry[Metric] = Registry(
    "metric",
    builtin_modules=(
        "assay.scoring.metrics.anls",
        "assay.scoring.metrics.error_rates",
        "assay.scoring.metrics.exact_match",
        "assay.scoring.metrics.hub",
        "assay.scoring.metrics.letters",
        "assay.scoring.metrics.pairs",
    ),
)
"""Every metric a task can name."""


def metric(
    name: str, *, aggregation: str = "mean", higher_is_better: bool = True, output_types: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Decorator: offer a function as a metric.

    >>> @metric("shouting", higher_is_better=False)
    ... def shouting(*, references, predictions):
    ...     return float(predictions[0].isupper())
    >>> METRICS.get("shouting").aggregation
    'mean'
    """

    def keep(function: F) -> F:
        if name in METRICS:
            owners = _origin(METRICS.get(name).function), _origin(function)
            if owners[0] != owners[1]:
                raise BadOption(
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

    return keep


def _origin(function: Callable[..., Any]) -> str:
    """Where a function was defined: the same one loaded twice is one owner, not two."""
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
