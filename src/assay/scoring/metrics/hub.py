"""Metrics of Hugging Face's `evaluate` package, for tasks that ask for them (`hf_evaluate: true`).

The package and the metric's script are loaded when a document is first judged.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage
from assay.scoring.metrics import METRICS, Metric

__all__ = ["HubMetric"]


class HubMetric:
    """A metric by its name on the hub."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._compute: Any = None

    def __call__(self, *, references: Any, predictions: Any, **settings: Any) -> Any:
        """What `evaluate` computes: mostly a dictionary with one entry per score."""
        if self._compute is None:
            try:
                evaluate = import_module("evaluate")
            except ImportError:
                raise MissingPackage.of("evaluate", f"the metric `{self.name}`") from None
            self._compute = evaluate.load(self.name).compute
        return self._compute(references=references, predictions=predictions, **settings)


for _name, _higher_is_better in (("accuracy", True), ("wer", False)):
    METRICS.add(
        _name,
        Metric(
            name=_name,
            function=HubMetric(_name),
            higher_is_better=_higher_is_better,
            output_types=("generate_until",),
        ),
    )
