"""Metrics of Hugging Face's `evaluate`, for tasks that ask for them (`hf_evaluate: true`).

Most are served by `assay.scoring.hf_evaluate` without a download; the rest is asked of the real package.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage
from assay.scoring.hf_evaluate import load_metric
from assay.scoring.metrics import METRICS, Metric

__all__ = ["HfEvaluateMetric"]


class HfEvaluateMetric:
    """A metric by its name on the hub."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._measure: Any = None

    def load(self, *, where: str = "") -> Any:
        """Find the metric now rather than at the first document.

        Raises:
            MissingPackage: The package that computes it is not installed.
        """
        if self._measure is None:
            try:
                self._measure = load_metric(self.name, real=_real_load)
            except ModuleNotFoundError as error:
                package = error.name or "evaluate"
                raise MissingPackage.of(package, f"the metric `{self.name}`", where=where) from None
        return self._measure

    def __call__(self, *, references: Any, predictions: Any, **settings: Any) -> Any:
        """What `evaluate` computes: mostly a dictionary with one entry per score."""
        return self.load().compute(references=references, predictions=predictions, **settings)


def _real_load(name: str, config_name: str | None = None) -> Any:
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
