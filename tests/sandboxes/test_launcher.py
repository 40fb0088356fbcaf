"""Tests of the launcher, which runs in a new interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.records.programs import Program, ResourceLimits
from assay.sandboxes.launch_spec import Descriptors, build_launch_spec, launcher_arguments


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="assay-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def launch(
    program: Program, folder: Path, *, stop: bool = False, **changes: Any
) -> tuple[list[dict[str, Any]], str]:
    """Run the launcher in mode `limits`; return its reports and the output of the program. Programs never run as root."""
    if os.geteuid() == 0:
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None:
            pytest.skip("needs an interpreter that every user can read")
        os.chown(folder, 65534, 65534)
        changes = {"uid": 65534, "interpreter": python, **changes}
    status, status_writer = os.pipe()
    control, control_writer = os.pipe()
    try:
        spec = build_launch_spec(
            program,
            mode="limits",
            folder=str(folder),
            descriptors=Descriptors(status_writer, control),
            **changes,
        )
        process = subprocess.Popen(
            [sys.executable, *launcher_arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(status_writer, control),
        )
        if stop:
            os.close(control_writer)
            control_writer = -1
        output, _ = process.communicate(spec, timeout=60)
        reports = os.read(status, 1 << 16).splitlines()
    finally:
        for descriptor in (status, status_writer, control, control_writer):
            if descriptor >= 0:
                os.close(descriptor)
    return [json.loads(line) for line in reports], output.decode()


def test_program_gets_its_files_and_standard_input(folder: Path) -> None:
    program = Program(
        source="import sys; print(sys.stdin.read(), open('a/b.txt').read())",
        stdin=b"in",
        files={"a/b.txt": b"file"},
    )
    reports, output = launch(program, folder)
    assert reports == [{"started": True}, {"exit": 0}]
    assert output == "in file\n"


@pytest.mark.parametrize(
    ("source", "report"),
    [
        ("import sys; sys.exit(7)", {"exit": 7}),
        ("import ctypes; ctypes.string_at(0)", {"signal": 11}),
        ("import time; time.sleep(60)", {"ended": "time"}),
    ],
)
def test_report_of_the_end(folder: Path, source: str, report: dict[str, Any]) -> None:
    program = Program(source=source, limits=ResourceLimits(time_s=2.0))
    assert launch(program, folder)[0][-1] == report


def test_closing_the_control_pipe_stops_the_program(folder: Path) -> None:
    program = Program(source="import time; time.sleep(60)", limits=ResourceLimits(time_s=60.0))
    assert launch(program, folder, stop=True)[0][-1] == {"ended": "stopped"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_program_never_runs_as_root(folder: Path) -> None:
    reports, output = launch(Program(source="print('here')"), folder, uid=None)
    assert "would run as root" in reports[1]["refused"]
    assert output == ""


def test_file_outside_the_folder_is_refused(folder: Path) -> None:
    reports, _ = launch(Program(source="pass", files={"../escaped": b""}), folder / ".")
    assert "outside the program's folder" in reports[1]["refused"]
    assert not (folder.parent / "escaped").exists()
