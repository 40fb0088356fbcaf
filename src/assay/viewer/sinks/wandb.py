"""Weights & Biases, and trackio, which has the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.viewer.sinks import SINKS
from assay.viewer.sinks.curves import final_numbers, package, progress_numbers

__all__ = ["Trackio", "Wandb"]


@SINKS.register("wandb")
class Wandb:
    """Curves while a run goes on, its numbers at the end: `--sink wandb,project=evals`. Arguments are those of `wandb.init`."""

    _package = "wandb"

    def __init__(self, **arguments: Any) -> None:
        self._service = package(self._package)
        self._arguments = {"project": "assay", **arguments}
        self._run: Any = None

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "run started":
            named = {"name": facts["run_id"], "config": {"model": facts["model"], **facts["options"]}}
            self._run = self._service.init(**{**named, **self._arguments})
        elif event == "progress":
            self._service.log(progress_numbers(facts))
        elif event == "run ended":
            self._service.log({"run/seconds": facts["seconds"], **final_numbers(facts)})
            self._summarise(facts)
            self._service.finish()

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """Numbers that tables of runs show, and how it ended."""
        self._run.summary.update({**final_numbers(facts), "state": facts["state"]})


@SINKS.register("trackio")
class Trackio(Wandb):
    """Curves on this machine or in a Space: `--sink trackio,project=evals`. Arguments are those of `trackio.init`."""

    _package = "trackio"

    def _summarise(self, facts: Mapping[str, Any]) -> None:
        """It keeps what was logged, and nothing apart."""
