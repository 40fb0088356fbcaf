"""`assay report` writes a file or explains its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.cli.app import run_command_line


def test_the_command_writes_a_file(
    runs: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    target = tmp_path / "deep" / "report.html"
    assert (
        run_command_line(
            ["report", str(runs[0].folder), "-o", str(target), "--documents", "2", "--title", "Mine <b>"]
        )
        == 0
    )
    assert "<title>Mine &lt;b&gt;</title>" in target.read_text("utf-8")
    assert "wrote" in capsys.readouterr().err
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--documents", "-1"], "cannot show -1 documents"),
        (["--by", "nothing"], "no scored document has the field `nothing`"),
        (["-o", "/"], "is a folder"),
    ],
)
def test_invalid_arguments_are_explained(
    runs: list[Any], workspace: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    pytest.importorskip("plotly")
    assert run_command_line(["report", str(runs[0].folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert list(workspace.iterdir()) == []
