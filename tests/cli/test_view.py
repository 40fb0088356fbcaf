"""`assay view`: errors and exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from assay.cli.app import run_command_line
from assay.core.installation import format_install_command
from assay.viewer.web import server


def test_port_in_use_is_an_error(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind((server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command_line(["view", "--no_browser", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"cannot use port {port}" in said and "--port" in said


def test_unknown_run_is_reported(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    assert run_command_line(["view", "--no_browser", "nothing-like-it"]) == 2
    assert "there are no runs" in capsys.readouterr().err


def test_missing_extra_is_reported(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert run_command_line(["view", "--no_browser"]) == 2
    assert format_install_command("viewer") in capsys.readouterr().err


def test_options_of_a_static_site_need_one(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["view", "--no_media"]) == 2
    assert "--no_media is only for --bundle" in capsys.readouterr().err
    assert run_command_line(["view", "--max_documents", "3"]) == 2
    assert "add --bundle DIR" in capsys.readouterr().err


def test_a_static_site_needs_a_run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    assert run_command_line(["view", "--bundle", "site"]) == 2
    assert "there is no run to write" in capsys.readouterr().err
    assert not (workspace / "site").exists()
