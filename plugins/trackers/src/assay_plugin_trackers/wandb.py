"""The sinks `wandb` (Weights & Biases) and `trackio`, which has the same functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.options.parsing import parse_bool
from assay.viewer.sinks.tracker_metrics import build_final_metrics, build_progress_metrics, import_package
from assay_plugin_trackers.result_files import write_result_files

__all__ = ["TrackioSink", "WandbSink"]

_MAX_NAME_CHARACTERS = 100


class WandbSink:
    """Log progress and final scores to Weights & Biases: `--sink wandb,project=evals`. Arguments: those of `wandb.init`.

    `samples=true` also logs the results and samples files of lm-eval, as an artifact.
    """

    _package = "wandb"

    def __init__(self, *, samples: bool | str = False, **arguments: Any) -> None:
        self._service = import_package(self._package)
        self._samples = parse_bool(samples) if isinstance(samples, str) else samples
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
            if self._samples and facts["state"] == "finished":
                self._log_files(facts)
            self._service.finish()
            self._complete_files()

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """Write the final scores and the state of the run to the run's summary."""
        self._run.summary.update({**build_final_metrics(facts), "state": facts["state"]})

    def _log_files(self, facts: Mapping[str, Any]) -> None:
        """Log the results and samples files as an artifact with the name of the run."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(facts["folder"]).name)[:_MAX_NAME_CHARACTERS]
        artifact = self._service.Artifact(f"assay-{name}", type="evaluation")
        with write_result_files(facts["folder"]) as folder:
            artifact.add_dir(str(folder))
            self._run.log_artifact(artifact)

    def _complete_files(self) -> None:
        """Wait until the files of an offline run are complete: `finish` returns before its background process writes the last records.

        Only the end of that process is announced. It is not ended while it writes another run of the caller.
        """
        if self._run.offline and self._service.setup().most_recent_active_run is None:
            self._service.teardown()


class TrackioSink(WandbSink):
    """Log progress and final scores to trackio: `--sink trackio,project=evals`. Arguments: those of `trackio.init`."""

    _package = "trackio"

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """Do nothing: trackio has no summary."""

    def _log_files(self, facts: Mapping[str, Any]) -> None:
        """Do nothing: trackio has no artifacts of this kind."""

    def _complete_files(self) -> None:
        """Do nothing: trackio has no offline runs."""
