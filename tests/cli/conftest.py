"""Fixtures that run the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.making import answer_correctly

from assay import models
from assay.cli.app import run_command_line
from assay.testing import ScriptedModel


class CommandResult(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Assay = Callable[..., CommandResult]


@pytest.fixture
def assay_command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Assay:
    """`assay_command("run", "--limit", "3")` in an empty folder."""

    def run(*arguments: str) -> CommandResult:
        capsys.readouterr()
        code = run_command_line(list(arguments))
        out, err = capsys.readouterr()
        return CommandResult(code, out, err)

    return run


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """The model called `scripted` on the command line; it can add, and nothing but generate."""
    model = ScriptedModel(answer_correctly, abilities=frozenset({"generate", "chat", "image"}))
    monkeypatch.setitem(models.MODELS._items, "scripted", lambda: model)
    return model


@pytest.fixture
def make_run(assay_command: Assay, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that executes a run whose answers are wrong where `wrong(document)` is true."""

    def run(name: str, wrong: Callable[[int], bool], *arguments: str) -> str:
        model = ScriptedModel(lambda request: "?" if wrong(request.document) else answer_correctly(request))
        monkeypatch.setitem(models.MODELS._items, name, lambda: model)
        called = assay_command("run", *arguments, "--model", name, "--no_cache", "--output_path", name)
        assert called.code == 0, called.err
        return str(next(path.parent for path in Path(name).rglob("journal.sqlite")))

    return run
