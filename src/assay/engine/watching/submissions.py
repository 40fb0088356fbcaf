"""Checkpoints that were submitted by name, with their priorities, and the status that submitters read."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.engine.watching.checkpoints import CheckpointFinder

__all__ = ["Submissions", "resolve_submission"]


class Submissions:
    """Submitted checkpoints; threads of the HTTP server add them, the watch reads them. A file keeps them over restarts."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._status: Mapping[str, Any] = {}
        self._priorities: dict[str, float] = {}
        if path is not None:
            with suppress(OSError, ValueError, AttributeError):
                stored = json.loads(path.read_text("utf-8"))
                self._priorities = {str(name): float(value) for name, value in stored.items()}

    @property
    def priorities(self) -> dict[str, float]:
        """Name -> priority of each submitted checkpoint; checkpoints without a submission have 0."""
        with self._lock:
            return dict(self._priorities)

    @property
    def status(self) -> Mapping[str, Any]:
        """The last status of the watch."""
        return self._status

    def add(self, name: str, priority: float) -> None:
        """Add a checkpoint, or change its priority."""
        with self._lock:
            self._priorities[name] = priority
            if self._path is not None:
                temporary = self._path.with_name(f"{self._path.name}.new")
                with suppress(OSError):  # disk full: the submission holds until the watch ends
                    temporary.write_text(json.dumps(self._priorities), encoding="utf-8")
                    temporary.replace(self._path)

    def publish(self, status: Mapping[str, Any]) -> None:
        """Set the status."""
        self._status = status


def resolve_submission(finder: CheckpointFinder, content: Any) -> tuple[str, float]:
    """Return the name and the priority in a submission `{"checkpoint": NAME or PATH, "priority": NUMBER}`.

    Only checkpoints inside the watched folder are accepted: a submission must not make the watch load other files.

    Raises:
        InvalidOption: It is malformed, or names nothing inside the watched folder, or a part of another checkpoint.
    """
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("checkpoint"), str)
        or not content["checkpoint"]
    ):
        raise InvalidOption('a submission is {"checkpoint": NAME, "priority": NUMBER}')
    priority = content.get("priority", 1)
    if isinstance(priority, bool) or not isinstance(priority, (int, float)) or not abs(priority) <= 1e9:
        raise InvalidOption("`priority` is not a number between -1e9 and 1e9")
    try:
        folder = finder.folder.resolve()
        path = (folder / content["checkpoint"]).resolve()
        name = path.relative_to(folder).as_posix()
    except (ValueError, OSError):
        raise InvalidOption("the checkpoint is not inside the watched folder") from None
    if name == "." or not path.exists():
        raise InvalidOption("there is no such checkpoint in the watched folder")
    if (whole := finder.find_enclosing(name)) is not None:
        raise InvalidOption(f"`{name}` is a part of the checkpoint `{whole}`; submit `{whole}`")
    return name, float(priority)
