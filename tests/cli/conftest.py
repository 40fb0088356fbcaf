"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.making import right_answers

from assay import models
from assay.cli.app import run_command_line
from assay.testing import ScriptedModel


class Called(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Assay = Callable[..., Called]


@pytest.fixture
def assay_command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Assay:
    """`assay_command("run", "--limit", "3")` in an empty folder."""

    def run(*arguments: str) -> Called:
        capsys.readouterr()
        code = run_command_line(list(arguments))
        out, err = capsys.readouterr()
        return Called(code, out, err)

    return run


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """The model called `scripted` on the command line; it can add, and nothing but generate."""
    model = ScriptedModel(right_answers, abilities=frozenset({"generate", "chat", "image"}))
    monkeypatch.setitem(models.MODELS._items, "scripted", lambda: model)
    return model


@pytest.fixture
def run_of(assay_command: Assay, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`run_of("bad", wrong, task)`: the folder of a run whose model adds, but not where `wrong(document)` says so."""

    def run(name: str, wrong: Callable[[int], bool], *arguments: str) -> str:
        model = ScriptedModel(lambda request: "?" if wrong(request.document) else right_answers(request))
        monkeypatch.setitem(models.MODELS._items, name, lambda: model)
        called = assay_command("run", *arguments, "--model", name, "--no_cache", "--output_path", name)
        assert called.code == 0, called.err
        return str(next(path.parent for path in Path(name).rglob("journal.sqlite")))

    return run
