"""What to record: the options of `python -m tools.oracle.record`, passed to the harness's environment as JSON."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["RecordingJob", "TaskTimeout", "limit_time", "match_names"]


@dataclass(slots=True, kw_only=True)
class RecordingJob:
    """One recording: the harness, the tasks, the source of the documents and the output folder."""

    harness: str
    output: str
    tasks: list[str] = field(default_factory=list)
    """Task names and globs."""

    groups: list[str] = field(default_factory=list)
    """Group names and globs."""

    variants: list[str] = field(default_factory=lambda: ["default"])
    documents: str = ""
    """A corpus whose documents and responses are used again."""

    data_root: str = ""
    """A folder with dataset repositories, `OWNER/NAME` each."""

    written: str = ""
    """A folder with hand-written documents."""

    include_path: str = ""
    """A folder with further task files; the harness's own tasks are left out then."""

    metric_scripts: str = ""
    """A folder with scripts of Hugging Face metrics."""

    limit: int = 6
    bootstrap_iters: int = 10
    task_timeout_s: int = 120
    share: int = 0
    shares: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RecordingJob:
        return cls(**json.loads(text))

    @property
    def folder(self) -> Path:
        return Path(self.output)


def match_names(patterns: list[str], names: list[str]) -> list[str]:
    """Return the names that match a pattern, in the order of the patterns, each once.

    >>> match_names(["mmlu_*", "arc"], ["arc", "boolq", "mmlu_a", "mmlu_b"])
    ['mmlu_a', 'mmlu_b', 'arc']
    """
    matches: dict[str, None] = {}
    for pattern in patterns:
        if not any(character in pattern for character in "*?["):
            matches[pattern] = None
        else:
            matches |= dict.fromkeys(name for name in names if fnmatchcase(name, pattern))
    return list(matches)


class TaskTimeout(BaseException):
    """A task took longer than the time limit. Task code that catches `Exception` does not catch it."""


@contextmanager
def limit_time(seconds: int) -> Iterator[None]:
    """Raise `TaskTimeout` in the main thread after some seconds."""

    def stop(*_: Any) -> None:
        raise TaskTimeout(f"stopped after {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
