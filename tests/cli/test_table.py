"""`assay table`: output and invalid arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task

import assay
from assay.cli.app import run_command_line


@pytest.fixture
def folder(workspace: Path) -> Path:
    task = str(write_task(workspace / "tasks"))
    for name in ("first", "second"):
        run = assay.run(model=make_model(name=name), tasks=[task], no_cache=True)
        run.close()
    return workspace


def test_a_table_is_printed_or_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["table", "first", "second"]) == 0
    printed = capsys.readouterr().out
    assert "1.0000" in printed
    assert printed.splitlines()[0].split() == ["task", "metric", "first", "second"]
    assert run_command_line(["table", "first", "second", "--format", "md", "-o", "deep/table.md"]) == 0
    assert (folder / "deep" / "table.md").read_text("utf-8").startswith("| task | metric | first | second |")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "word"], "unknown format `word`"),
        (["--error", "much"], "invalid value `much`"),
        (["--tasks", "other"], "no run has a score for `other`"),
        (["-o", "."], "is a folder"),
    ],
)
def test_user_error_has_what_where_and_hint(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run_command_line(["table", "first", *words]) == 2
    assert said in capsys.readouterr().err


def test_unknown_run_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["table", "third"]) == 2
    assert "`third`" in capsys.readouterr().err
