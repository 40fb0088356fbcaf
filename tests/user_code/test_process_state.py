"""Tests of what user code may do to the process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from assay.user_code.process_state import ProcessState


def test_standard_output_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessState().redirect_output():
        print("from a helper")
    print("a result")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a result\n", "from a helper\n")


def test_streams_and_working_directory_are_restored(tmp_path: Path) -> None:
    output, errors, folder = sys.stdout, sys.stderr, Path.cwd()
    with ProcessState().redirect_output():
        os.chdir(tmp_path)
        sys.stdout = sys.stderr = None
    assert (sys.stdout, sys.stderr, Path.cwd()) == (output, errors, folder)


def test_a_working_directory_that_was_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with ProcessState().redirect_output():
        pass
