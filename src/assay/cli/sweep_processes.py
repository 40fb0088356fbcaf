"""Execute the runs of a sweep or a watch, each in its own process, so that its model's memory is released."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from assay.core.errors import RunInterrupted

__all__ = ["RunProcess", "forward_signals", "run_all", "start_run"]

_POLL_S = 0.05
_MAX_LOG_TAIL_BYTES = 20_000


@dataclass(slots=True)
class RunProcess:
    """A running process."""

    name: str
    process: subprocess.Popen[bytes]
    started: float
    log: IO[bytes] | None
    """The log file; None: the terminal."""

    log_path: Path | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while it is running."""
        code = self.process.poll()
        if code is not None and self.log is not None:
            self.log.close()
        return code

    def read_error(self) -> str:
        """Return the last error in the log file; empty if there is none."""
        if self.log_path is None:
            return ""
        with suppress(OSError), self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - _MAX_LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith("error: ")] or [
                line for line in lines if line.strip()
            ]
            return errors[-1].removeprefix("error: ").strip() if errors else ""
        return ""


def run_all(runs: Mapping[str, Mapping[str, Any]], *, jobs: int, log_folder: Path) -> dict[str, int]:
    """Execute all runs, `jobs` at a time. A failed run does not stop the others.

    Args:
        runs: The options of each run by name.
        jobs: Number of concurrent runs. A single run writes to the terminal, several write to log files.
        log_folder: Folder for the log files.

    Returns:
        The exit codes of failed runs by name.

    Raises:
        RunInterrupted: The sweep was interrupted. All runs were stopped and have saved their state.
    """
    pending = list(runs.items())[::-1]
    running: list[RunProcess] = []
    failed: dict[str, int] = {}
    with forward_signals(running):
        while pending or running:
            while pending and len(running) < jobs:
                name, options = pending.pop()
                position = f"{len(runs) - len(pending)}/{len(runs)}"
                running.append(start_run(name, options, f"[{position}]", None if jobs == 1 else log_folder))
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                if code := _report_end(child):
                    failed[child.name] = code
            time.sleep(_POLL_S)
    return failed


def start_run(name: str, options: Mapping[str, Any], heading: str, log_folder: Path | None) -> RunProcess:
    """Start a run. Its options go through a pipe, so that secrets appear in no file and no process list."""
    log: IO[bytes] | None = None
    path: Path | None = None
    log_note = ""
    if log_folder is not None:
        log_folder.mkdir(parents=True, exist_ok=True)
        path = log_folder / f"{_file_name(name)}.log"
        log, log_note = path.open("ab"), f"  ({path})"
    click.secho(f"{heading} {name}{log_note}", err=True, bold=True)
    command = [sys.executable, "-m", "assay", "run", "--config", "-", "--json"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,  # Ctrl-C reaches the sweep only, which stops its runs
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(json.dumps(dict(options), default=str).encode())
    except BrokenPipeError:
        pass  # the process has exited already and reported why
    return RunProcess(name, process, time.monotonic(), log, path)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in name)


def _report_end(child: RunProcess) -> int:
    """Print how a run ended and return its exit code."""
    if child.log is not None:
        child.log.close()
    code, seconds = child.process.returncode, time.monotonic() - child.started
    if child.log is not None or code:
        how = "done" if not code else f"failed with exit code {code}"
        click.secho(f"      {child.name}: {how} after {seconds:.0f} s", err=True, fg="red" if code else None)
    return code


@contextmanager
def forward_signals(running: list[RunProcess], what: str = "sweep") -> Iterator[None]:
    """Stop all runs on Ctrl-C or SIGTERM and wait for them."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if here else None
    try:
        yield
    except KeyboardInterrupt:
        for child in running:
            child.process.terminate()
        for child in running:
            child.process.wait()
        raise RunInterrupted(f"the {what} was interrupted") from None
    finally:
        for child in running:
            if child.process.poll() is None:
                child.process.terminate()
            if child.log is not None:
                child.log.close()
        if here:
            signal.signal(signal.SIGTERM, before)
