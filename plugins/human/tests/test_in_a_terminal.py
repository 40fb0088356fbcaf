"""`--model human` in a real terminal: asked, interrupted, continued; and without one."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.making import write_choices, write_task

COMMAND = [sys.executable, "-m", "assay", "run", "--model", "human", "--model_args", "who=ada", "--tasks"]


class TerminalSession:
    """A run in a pseudo-terminal, with typed input."""

    def __init__(self, *arguments: str) -> None:
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.execv(sys.executable, [*COMMAND, *arguments])
        self.seen = ""

    def until(self, words: str, seconds: float = 60) -> None:
        """Wait until new output contains these words."""
        ends = time.monotonic() + seconds
        shown = ""
        while words not in shown:
            waiting = select.poll()  # `select` supports descriptors up to 1,023 only
            waiting.register(self.terminal, select.POLLIN)
            if not waiting.poll(max(0.0, ends - time.monotonic()) * 1000):
                raise AssertionError(f"{words!r} was not shown: {self.seen[-2000:]}")
            try:
                data = os.read(self.terminal, 65_536).decode("utf-8", "replace")
            except OSError:
                data = ""
            if not data:
                raise AssertionError(f"it ended before {words!r} was shown: {self.seen[-2000:]}")
            shown += data
            self.seen += data

    def type(self, line: str) -> None:
        os.write(self.terminal, line.encode())

    def end(self) -> int:
        """Read the remaining output; return the exit code."""
        while True:
            try:
                data = os.read(self.terminal, 65_536)
            except OSError:  # Linux raises it when the other side is closed
                data = b""
            if not data:
                break
            self.seen += data.decode("utf-8", "replace")
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.fixture(autouse=True)
def home(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(workspace / "home"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the child becomes another program at once
def test_a_run_is_interrupted_and_resumed(workspace: Path) -> None:
    tasks = f"{write_choices(workspace, rows=1)},{write_task(workspace)}"
    first = TerminalSession(tasks, "--limit", "3")
    first.until("which one?")
    assert "[1] no" in first.seen and "[2] yes" in first.seen
    first.type("2\n")
    first.until("your answer")
    first.type("1\n")
    first.until("your answer")
    first.type("\x04")  # Ctrl-D: left out
    first.until("your answer")
    os.kill(first.process, signal.SIGINT)
    assert first.end() == 130

    again = TerminalSession(tasks, "--limit", "3")
    again.until("your answer")
    assert "document 1" in again.seen and "document 0" not in again.seen
    again.type("2\n")
    again.until("your answer")
    again.type("3\n")
    assert again.end() == 0
    table = [line.split() for line in again.seen.splitlines() if "exact_match" in line or " acc " in line]
    assert len(table) == 2 and all("1.0000" in words for words in table)


def test_a_missing_terminal_is_an_error(workspace: Path) -> None:
    command = [*COMMAND, str(write_task(workspace))]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert "the model `human` needs a terminal" in done.stderr
    assert "Traceback" not in done.stderr
