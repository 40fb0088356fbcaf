"""The sinks `wandb` (Weights & Biases) and `trackio`, which has the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.viewer.sinks.tracker_metrics import build_final_metrics, build_progress_metrics, import_package

__all__ = ["TrackioSink", "WandbSink"]


class WandbSink:
    """Log progress and final scores to Weights & Biases: `--sink wandb,project=evals`. Arguments: those of `wandb.init`."""

    _package = "wandb"

    def __init__(self, **arguments: Any) -> None:
        self._service = import_package(self._package)
        self._arguments = {"project": "assay", **arguments}
        self._run: Any = None

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "run started":
            named = {"name": facts["run_id"], "config": {"model": facts["model"], **facts["options"]}}
            self._run = self._service.init(**{**named, **self._arguments})
        elif event == "progress":
            self._service.log(build_progress_metrics(facts))
        elif event == "run ended":
            self._service.log({"run/seconds": facts["seconds"], **build_final_metrics(facts)})
            self._summarise(facts)
            self._service.finish()

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """Write the final scores and the state of the run to the run's summary."""
        self._run.summary.update({**build_final_metrics(facts), "state": facts["state"]})


class TrackioSink(WandbSink):
    """Log progress and final scores to trackio: `--sink trackio,project=evals`. Arguments: those of `trackio.init`."""

    _package = "trackio"

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """Do nothing: trackio has no summary."""
