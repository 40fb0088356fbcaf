"""The runs of a sweep, each in a process of its own, so that its model's memory is free for the next one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from assay.core.errors import Interrupted

__all__ = ["carry_out"]

_POLL_S = 0.05


@dataclass(slots=True)
class _Child:
    """A run that goes on."""

    name: str
    process: subprocess.Popen[bytes]
    started: float
    words: IO[bytes] | None
    """Where it says what it has to say; None: the terminal."""


def carry_out(runs: Mapping[str, Mapping[str, Any]], *, jobs: int, place: Path) -> dict[str, int]:
    """Run everything, `jobs` at a time; one that fails stops no other.

    Args:
        runs: The options of each, by its name.
        jobs: How many go on at the same time. A single one talks to the terminal, several to files.
        place: Folder for those files.

    Returns:
        The exit codes of those that failed, by name.

    Raises:
        Interrupted: Somebody stopped it. Every run was told to, and saved what it had.
    """
    waiting = list(runs.items())[::-1]
    going: list[_Child] = []
    failed: dict[str, int] = {}
    with _stops(going):
        while waiting or going:
            while waiting and len(going) < jobs:
                name, options = waiting.pop()
                at = f"{len(runs) - len(waiting)}/{len(runs)}"
                going.append(_start(name, options, at, None if jobs == 1 else place))
            for child in [child for child in going if child.process.poll() is not None]:
                going.remove(child)
                if code := _ended(child):
                    failed[child.name] = code
            time.sleep(_POLL_S)
    return failed


def _start(name: str, options: Mapping[str, Any], at: str, place: Path | None) -> _Child:
    """Start a run. Its options go through a pipe: a key among them is in no file and no list of processes."""
    words: IO[bytes] | None = None
    told = ""
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{_file_name(name)}.log"
        words, told = path.open("ab"), f"  ({path})"
    click.secho(f"[{at}] {name}{told}", err=True, bold=True)
    command = [sys.executable, "-m", "assay", "run", "--config", "-", "--json"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=words,
        start_new_session=True,  # Ctrl-C reaches the sweep, which tells its runs, once
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(json.dumps(dict(options), default=str).encode())
    except BrokenPipeError:
        pass  # it ended at once, and says why
    return _Child(name, process, time.monotonic(), words)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in name)


def _ended(child: _Child) -> int:
    """Say how a run ended."""
    if child.words is not None:
        child.words.close()
    code, seconds = child.process.returncode, time.monotonic() - child.started
    if child.words is not None or code:
        how = "done" if not code else f"failed with exit code {code}"
        click.secho(f"      {child.name}: {how} after {seconds:.0f} s", err=True, fg="red" if code else None)
    return code


@contextmanager
def _stops(going: list[_Child]) -> Iterator[None]:
    """Ctrl-C and a termination signal are passed on, and what they do is waited for."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if here else None
    try:
        yield
    except KeyboardInterrupt:
        for child in going:
            child.process.terminate()
        for child in going:
            child.process.wait()
        raise Interrupted("the sweep was stopped") from None
    finally:
        for child in going:
            if child.process.poll() is None:
                child.process.terminate()
            if child.words is not None:
                child.words.close()
        if here:
            signal.signal(signal.SIGTERM, before)
