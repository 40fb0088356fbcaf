"""`assay cache`: list and prune."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import write_task

from assay.testing import ScriptedModel


@pytest.fixture(autouse=True)
def filled(workspace: Path, scripted: ScriptedModel, assay_command: Assay) -> None:
    path = write_task(workspace / "tasks", "one")
    assert assay_command("run", "--model", "scripted", str(path)).code == 0


def test_cache_ls_and_path(assay_command: Assay, assay_home: Path) -> None:
    called = assay_command("cache", "ls")
    assert called.code == 0
    assert "scripted" in called.out
    assert called.err.startswith("6 responses")
    assert assay_command("cache", "path").out == f"{assay_home / 'cache.sqlite'}\n"
    document = json.loads(assay_command("cache", "ls", "--json").out)
    assert [(model["model"], model["responses"]) for model in document["models"]] == [("scripted", 6)]


def test_pruned_responses_are_requested_again(assay_command: Assay, scripted: ScriptedModel) -> None:
    assert (
        assay_command("cache", "prune", "--model", "scripted", "--dry_run").out
        == "6 responses would be removed\n"
    )
    assert assay_command("cache", "prune", "--older_than", "1d").out == "0 responses removed\n"
    again = ["run", "--model", "scripted", "tasks/one.yaml", "--output_path", "out"]
    assert json.loads(assay_command("cache", "prune", "--all", "--json").out)["responses"] == 6
    asked = len(scripted.asked)
    assert assay_command(*again).code == 0
    assert len(scripted.asked) == asked + 6


@pytest.mark.parametrize(
    "arguments",
    [["prune"], ["prune", "--older_than", "soon"], ["prune", "--older_than", "30"], ["shake"]],
    ids=" ".join,
)
def test_invalid_arguments_are_rejected(assay_command: Assay, arguments: list[str]) -> None:
    called = assay_command("cache", *arguments)
    assert called.code == 2
    assert called.err.startswith("error: ")
