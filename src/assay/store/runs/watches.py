"""Stored watches of training runs: which run evaluates which checkpoint.

A watch is a folder `watch-<digest>` beside its runs, with one file for each checkpoint. The files only name the runs: scores and
progress are in the journals. Without them a watch plans its checkpoints again and finds the same runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import OutputError, UserError
from assay.core.fingerprints import digest_text

__all__ = ["CheckpointOutcome", "CheckpointRecord", "Watch", "WatchSettings", "find_watches"]

WATCH_FILE = "watch.json"
_EVENTS_FILE = "events.jsonl"

CheckpointOutcome = Literal["started", "finished", "failed", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """What became of a checkpoint."""

    name: str
    """The path below the watched folder: `checkpoint-500`."""

    step: float | None
    outcome: CheckpointOutcome
    stamp: str = ""
    """Digest of the names, sizes and times of its files when it was evaluated."""

    run: str = ""
    """The folder name of its run."""

    reason: str = ""
    """Why it has no result."""

    attempts: int = 0
    ended_s: float | None = None
    """When its run ended, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """What a watch evaluates, for the pages and tables that show it."""

    checkpoints: str
    """The watched folder."""

    tasks: tuple[str, ...]
    alpha: float = 0.05
    """The false-alarm rate of regressions over the whole training run."""

    alarm_tasks: tuple[str, ...] = ()
    """The tasks with alarms; empty: all."""


class Watch:
    """A stored watch; the only writer is the process that holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def key(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def run_folder(self) -> Path:
        """The folder that contains the runs."""
        return self.folder.parent

    def read_settings(self) -> WatchSettings:
        """Return the settings.

        Raises:
            UserError: The file is missing or damaged.
        """
        try:
            stored = json.loads((self.folder / WATCH_FILE).read_text("utf-8"))
            return WatchSettings(
                checkpoints=str(stored["checkpoints"]),
                tasks=tuple(map(str, stored["tasks"])),
                alpha=float(stored["alpha"]),
                alarm_tasks=tuple(map(str, stored["alarm_tasks"])),
            )
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(
                f"there is no watch in `{self.folder}`", hint="`assay watch` creates one"
            ) from None

    def write_settings(self, settings: WatchSettings) -> None:
        """Store the settings."""
        self._write(self.folder / WATCH_FILE, asdict(settings))

    def read_records(self) -> dict[str, CheckpointRecord]:
        """Return the record of each checkpoint by name; damaged files are left out and written again by the watch."""
        found = {}
        for path in sorted((self.folder / "checkpoints").glob("*.json")):
            with suppress(OSError, ValueError, TypeError, AttributeError):
                stored = json.loads(path.read_text("utf-8"))
                known = {field.name for field in fields(CheckpointRecord)}
                record = CheckpointRecord(**{key: value for key, value in stored.items() if key in known})
                found[record.name] = record
        return found

    def write_record(self, record: CheckpointRecord) -> None:
        """Store the record of a checkpoint, replacing an older one."""
        readable = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in record.name)
        name = f"{readable[-80:]}-{digest_text(record.name)[:8]}.json"
        self._write(self.folder / "checkpoints" / name, asdict(record))

    def read_events(self) -> set[str]:
        """Return the ids of the events that were delivered to hooks."""
        with suppress(OSError):
            lines = (self.folder / _EVENTS_FILE).read_text("utf-8", "replace").splitlines()
            return {event for line in lines if (event := _read_event(line))}
        return set()

    def add_event(self, event: str) -> None:
        """Remember that an event was delivered."""
        with suppress(OSError), (self.folder / _EVENTS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event}) + "\n")

    @staticmethod
    def _write(path: Path, content: Mapping[str, Any]) -> None:
        temporary = path.with_name(f"{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise OutputError(
                f"cannot write `{path}`: {error.strerror}", hint="choose another --output_path"
            ) from None


def _read_event(line: str) -> str:
    """Return the id in a line; empty for one that was cut off by a kill."""
    try:
        return str(json.loads(line)["event"])
    except (ValueError, KeyError, TypeError):
        return ""


def find_watches(folders: Iterable[Path]) -> list[Watch]:
    """Return the watches in folders with runs, the newest first."""
    found: dict[Path, float] = {}
    for folder in folders:
        for path in folder.glob(f"watch-*/{WATCH_FILE}"):
            with suppress(OSError):
                found[path.parent.resolve()] = path.stat().st_mtime
    return [Watch(path) for path in sorted(found, key=lambda path: (-found[path], path.name))]
