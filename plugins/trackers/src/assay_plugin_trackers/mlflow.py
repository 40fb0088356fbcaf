"""The sink `mlflow`: parameters, progress, final scores, and results and samples as artifacts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.core.options.parsing import parse_bool
from assay.viewer.sinks.tracker_metrics import build_final_metrics, build_progress_metrics, import_package
from assay_plugin_trackers.result_files import write_result_files

__all__ = ["MlflowSink"]

_MAX_PARAMETER_CHARACTERS = 500
"""MLflow rejects longer parameters."""


class MlflowSink:
    """Log parameters, progress and results to MLflow: `--sink mlflow,experiment=evals,tracking_uri=http://…`.

    `samples=true` also logs the results and samples files of lm-eval.
    """

    def __init__(
        self,
        *,
        experiment: str = "assay",
        tracking_uri: str = "",
        run_name: str = "",
        samples: bool | str = False,
    ) -> None:
        self._tracking = import_package("mlflow.tracking", "mlflow")
        self._experiment, self._uri, self._name = experiment, tracking_uri or None, run_name
        self._samples = parse_bool(samples) if isinstance(samples, str) else samples
        self._client: Any = None
        self._id = ""

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "run started":
            self._start(facts)
        elif event == "progress":
            self._log(build_progress_metrics(facts), step=facts["done"])
        elif event == "run ended":
            self._log(build_final_metrics(facts), step=0)
            self._client.log_text(
                self._id, json.dumps(facts["results"], indent=2, default=str), "results.json"
            )
            if self._samples and facts["state"] == "finished":
                with write_result_files(facts["folder"]) as folder:
                    self._client.log_artifacts(self._id, str(folder), "lm_eval")
            state = {"finished": "FINISHED", "stopped": "KILLED"}.get(facts["state"], "FAILED")
            self._client.set_terminated(self._id, state)

    def _start(self, facts: Mapping[str, Any]) -> None:
        self._client = self._tracking.MlflowClient(self._uri)
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
        run = self._client.create_run(experiment, run_name=self._name or facts["run_id"])
        self._id = run.info.run_id
        for key, value in {"model": facts["model"], **facts["options"]}.items():
            self._client.log_param(self._id, key, str(value)[:_MAX_PARAMETER_CHARACTERS])

    def _log(self, numbers: Mapping[str, float], *, step: int) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._id, name, value, step=step)
