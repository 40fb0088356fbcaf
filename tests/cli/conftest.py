"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.making import right_answers

from assay import models
from assay.cli.app import call
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
        code = call(list(arguments))
        out, err = capsys.readouterr()
        return Called(code, out, err)

    return run


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """The model called `scripted` on the command line; it can add, and nothing but generate."""
    model = ScriptedModel(right_answers, abilities=frozenset({"generate", "chat", "image"}))
    monkeypatch.setitem(models.MODELS._items, "scripted", lambda: model)
    return model
