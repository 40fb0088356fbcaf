"""MLflow: parameters, curves, results as an artifact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.viewer.sinks import SINKS
from assay.viewer.sinks.curves import final_numbers, package, progress_numbers

__all__ = ["Mlflow"]

_LONGEST = 500
"""Letters of a parameter MLflow takes."""


@SINKS.register("mlflow")
class Mlflow:
    """Curves, parameters and results: `--sink mlflow,experiment=evals,tracking_uri=http://…`."""

    def __init__(self, *, experiment: str = "assay", tracking_uri: str = "", run_name: str = "") -> None:
        self._tracking = package("mlflow.tracking", "mlflow")
        self._experiment, self._uri, self._name = experiment, tracking_uri or None, run_name
        self._client: Any = None
        self._id = ""

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "run started":
            self._start(facts)
        elif event == "progress":
            self._log(progress_numbers(facts), step=facts["done"])
        elif event == "run ended":
            self._log(final_numbers(facts), step=0)
            self._client.log_text(
                self._id, json.dumps(facts["results"], indent=2, default=str), "results.json"
            )
            state = {"finished": "FINISHED", "stopped": "KILLED"}.get(facts["state"], "FAILED")
            self._client.set_terminated(self._id, state)

    def _start(self, facts: Mapping[str, Any]) -> None:
        self._client = self._tracking.MlflowClient(self._uri)
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
        run = self._client.create_run(experiment, run_name=self._name or facts["run_id"])
        self._id = run.info.run_id
        for key, value in {"model": facts["model"], **facts["options"]}.items():
            self._client.log_param(self._id, key, str(value)[:_LONGEST])

    def _log(self, numbers: Mapping[str, float], *, step: int) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._id, name, value, step=step)
