"""`assay view` where it cannot be opened: a clear word and exit code 2."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from assay.cli.app import run_command_line
from assay.core.installation import format_install_command
from assay.viewer.web import server


def test_a_port_that_is_taken_is_said(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind((server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command_line(["view", "--no_browser", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"cannot use port {port}" in said and "--port" in said


def test_a_run_that_is_not_there_is_said(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    assert run_command_line(["view", "--no_browser", "nothing-like-it"]) == 2
    assert "there are no runs" in capsys.readouterr().err


def test_a_missing_extra_is_named(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert run_command_line(["view", "--no_browser"]) == 2
    assert format_install_command("viewer") in capsys.readouterr().err
