"""Metrics of Hugging Face's `evaluate` for tasks that request them (`hf_evaluate: true`).

`assay.scoring.hf_evaluate` implements most of them without a download. The `evaluate` package loads the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage
from assay.scoring.hf_evaluate import load_metric
from assay.scoring.metrics import METRICS, Metric

__all__ = ["HfEvaluateMetric"]


class HfEvaluateMetric:
    """A metric of the `evaluate` hub, loaded on first use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loaded: Any = None

    def load(self, *, where: str = "") -> Any:
        """Load the metric.

        Raises:
            MissingPackage: A package that the metric needs is not installed.
        """
        if self._loaded is None:
            try:
                self._loaded = load_metric(self.name, real=_load_with_evaluate)
            except ModuleNotFoundError as error:
                package = error.name or "evaluate"
                raise MissingPackage.of(package, f"the metric `{self.name}`", where=where) from None
        return self._loaded

    def __call__(self, *, references: Any, predictions: Any, **settings: Any) -> Any:
        """Compute the metric. The result is usually a mapping with one entry per score."""
        return self.load().compute(references=references, predictions=predictions, **settings)


def _load_with_evaluate(name: str, config_name: str | None = None) -> Any:
    return import_module("evaluate").load(name, config_name)


for _name, _higher_is_better in (("accuracy", True), ("cer", False), ("wer", False)):
    METRICS.add(
        _name,
        Metric(
            name=_name,
            function=HfEvaluateMetric(_name),
            higher_is_better=_higher_is_better,
            output_types=("generate_until",),
        ),
    )
