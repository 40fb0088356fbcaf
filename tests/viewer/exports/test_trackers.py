"""Stored runs for trackers; `plugins/trackers/tests` writes them with the packages of the trackers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.registry import Registry
from assay.viewer.exports.formats import export
from assay.viewer.sinks.tracker_metrics import import_package


class FolderSink:
    """A sink that writes its events into the folder of its arguments."""

    def __init__(self, *, samples: bool, dir: str = "", tracking_uri: str = "", mode: str = "") -> None:
        self.path = Path(dir or tracking_uri.removeprefix("file://")) / "events.json"
        self.events: list[Any] = [{"samples": samples, "silent": os.environ.get("WANDB_SILENT")}]

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        self.events.append([event, facts.get("state"), len(facts.get("numbers", ()))])
        self.path.write_text(json.dumps(self.events))


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_the_sink_gets_the_start_and_the_end_of_the_run(
    rich_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sinks: Registry[Any] = Registry("test sink")
    sinks.register(name)(FolderSink)
    monkeypatch.setattr("assay.viewer.exports.trackers.SINKS", sinks)
    monkeypatch.delenv("WANDB_SILENT", raising=False)
    (file,) = export(rich_run, name, [], tmp_path / "tracker")
    arguments, start, end = json.loads(file.read_text())
    assert arguments == {"samples": True, "silent": "true" if name == "wandb" else None}
    assert start == ["run started", None, 0]
    assert end == ["run ended", "finished", len(rich_run.estimates)]
    assert "WANDB_SILENT" not in os.environ, "variables are restored"


def test_a_tracker_gets_whole_runs(rich_run: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="trackers get whole runs"):
        export(rich_run, "mlflow", ["sums"], tmp_path / "tracker")


def test_a_missing_package_is_named_with_the_format(
    rich_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_sink(**arguments: Any) -> Any:
        return import_package("package_that_is_missing", "mlflow")

    sinks: Registry[Any] = Registry("test sink")
    sinks.register("mlflow")(open_sink)
    monkeypatch.setattr("assay.viewer.exports.trackers.SINKS", sinks)
    with pytest.raises(MissingPackage, match=r"^the format `mlflow` needs the package `mlflow`") as caught:
        export(rich_run, "mlflow", [], tmp_path / "tracker")
    assert caught.value.where == "--format"
