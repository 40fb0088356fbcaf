"""Stored runs for experiment trackers: an MLflow folder, or an offline run of Weights & Biases, with results and samples.

The sinks of the same names write them; the plugin `trackers` contains these sinks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, MissingPackage
from assay.store.runs.run import Run
from assay.viewer.exports.event_facts import build_result_facts, build_stored_start_facts
from assay.viewer.sinks import SINKS

__all__ = ["write_mlflow", "write_wandb"]


def write_mlflow(run: Run, tasks: Sequence[str], folder: Path) -> list[Path]:
    """Write a run of MLflow into a folder, which `mlflow ui --backend-store-uri` shows."""
    _require_all_tasks(run, tasks)
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {"tracking_uri": folder.resolve().as_uri(), "samples": True}
    return _write(run, "mlflow", arguments, folder, {"MLFLOW_ALLOW_FILE_STORE": "true"})


def write_wandb(run: Run, tasks: Sequence[str], folder: Path) -> list[Path]:
    """Write an offline run of Weights & Biases into a folder, which `wandb sync` uploads."""
    _require_all_tasks(run, tasks)
    folder.mkdir(parents=True, exist_ok=True)
    place = str(folder.resolve())
    arguments = {"dir": place, "mode": "offline", "samples": True}
    return _write(run, "wandb", arguments, folder, {"WANDB_SILENT": "true", "WANDB_DATA_DIR": place})


def _require_all_tasks(run: Run, tasks: Sequence[str]) -> None:
    if set(tasks) != set(run.tasks):
        raise InvalidOption("trackers get whole runs", where="--tasks", hint="leave out --tasks")


def _write(
    run: Run, name: str, arguments: dict[str, Any], folder: Path, variables: dict[str, str]
) -> list[Path]:
    before = set(folder.rglob("*"))
    with _set_variables(variables), _name_format(name):
        sink = SINKS.get(name, where="--format")(**arguments)
        sink.emit("run started", build_stored_start_facts(run))
        ended = {
            "state": "finished" if run.finished else "stopped",
            "why": "",
            "seconds": run.facts.get("seconds") or 0.0,
            "folder": str(run.folder),
            **build_result_facts(run),
        }
        sink.emit("run ended", ended)
    return sorted(path for path in set(folder.rglob("*")) - before if path.is_file())


@contextmanager
def _name_format(name: str) -> Iterator[None]:
    """Refer to the format instead of the sink if the package of the tracker is not installed."""
    try:
        yield
    except MissingPackage as error:
        what = error.what.replace("the sink needs", f"the format `{name}` needs", 1)
        raise MissingPackage(what, where="--format", hint=error.hint) from None


@contextmanager
def _set_variables(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, for as long as the sink works."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
