"""Human labels of documents: right or wrong, a note, a star. Stored beside the journal with who set them and when.

`labels.jsonl` is append-only: each line changes some values of one person's label of one document, and the last change
counts. Two viewers can label the same run at the same time.
"""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, OutputError
from assay.store.database.locks import file_lock
from assay.store.journal.rows import replace_surrogates
from assay.store.runs.run import SCORINGS_FOLDER

__all__ = [
    "LABELS_FILE",
    "VERDICTS",
    "Label",
    "append_label",
    "compute_labels_signature",
    "find_labeller",
    "group_labels",
    "read_run_labels",
]

LABELS_FILE = "labels.jsonl"
VERDICTS = ("right", "wrong")
_MAX_NOTE_LENGTH = 4000
_MAX_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one person says about the answer to one document."""

    task: str
    document: int
    who: str
    at: float
    """When it was changed last, in seconds since 1970."""

    verdict: str = ""
    """right, wrong, or empty."""

    note: str = ""
    star: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether everything was removed again."""
        return not (self.verdict or self.note or self.star)

    @property
    def value(self) -> float | None:
        """1 for right, 0 for wrong, None without a verdict."""
        return {"right": 1.0, "wrong": 0.0}.get(self.verdict)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def find_labeller() -> str:
    """Return the name under which labels of this user are stored: `ASSAY_LABELLER`, else the name of the account."""
    given = os.environ.get("ASSAY_LABELLER", "").strip()
    if given:
        return given[:_MAX_NAME_LENGTH]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _find_labels_path(folder: Path) -> Path:
    """Return the file of a run; a rescoring shares the labels of its run, because it has the same answers."""
    resolved = folder.resolve()
    base = resolved.parent.parent if resolved.parent.name == SCORINGS_FOLDER else resolved
    return base / LABELS_FILE


def compute_labels_signature(folder: Path) -> tuple[int, int]:
    """Return a value that changes with the labels of a run."""
    try:
        status = _find_labels_path(folder).stat()
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def read_run_labels(folder: Path) -> list[Label]:
    """Return the labels of a run that are not empty, one per person and document, by task and document."""
    try:
        lines = _find_labels_path(folder).read_bytes().splitlines()
    except OSError:
        return []
    found: dict[tuple[str, int, str], Label] = {}
    for line in lines:
        change = _parse_change(line)
        if change is not None:
            key, at, values = change
            known = found.get(key) or Label(task=key[0], document=key[1], who=key[2], at=at)
            found[key] = replace(known, at=at, **values)
    kept = [label for label in found.values() if not label.is_empty]
    return sorted(kept, key=lambda label: (label.task, label.document, label.who))


def group_labels(labels: Iterable[Label]) -> dict[tuple[str, int], list[Label]]:
    """Return the labels by (task, document)."""
    found: dict[tuple[str, int], list[Label]] = {}
    for label in labels:
        found.setdefault((label.task, label.document), []).append(label)
    return found


def append_label(
    folder: Path,
    task: str,
    document: int,
    *,
    who: str,
    verdict: str | None = None,
    note: str | None = None,
    star: bool | None = None,
) -> None:
    """Change a person's label of a document; values that are None stay as they are.

    Raises:
        InvalidOption: A value is invalid.
        OutputError: The file cannot be written.
    """
    who = " ".join(replace_surrogates(who).split())
    note = None if note is None else replace_surrogates(note)
    if not who or len(who) > _MAX_NAME_LENGTH:
        raise InvalidOption(f"the name of a labeller has 1 to {_MAX_NAME_LENGTH} characters")
    if verdict not in (None, "", *VERDICTS):
        raise InvalidOption(f"a verdict is one of: {', '.join(VERDICTS)}")
    if note is not None and len(note) > _MAX_NOTE_LENGTH:
        raise InvalidOption(f"a note has at most {_MAX_NOTE_LENGTH} characters")
    change = {"task": task, "document": document, "who": who, "at": time.time()}
    change |= {
        name: value
        for name, value in (("verdict", verdict), ("note", note), ("star", star))
        if value is not None
    }
    line = json.dumps(change).encode() + b"\n"
    path = _find_labels_path(folder)
    try:
        with file_lock(path.with_name(f".{LABELS_FILE}.lock")), path.open("a+b") as file:
            if file.tell() and not _ends_with_newline(file):
                line = b"\n" + line  # the last process was killed while it wrote
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write the labels: {error.strerror}", where=str(path)) from None


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _parse_change(line: bytes) -> tuple[tuple[str, int, str], float, dict[str, Any]] | None:
    """Return (key, time, changed values) of a line; None if it is damaged."""
    try:
        content = json.loads(line)
        key = (str(content["task"]), int(content["document"]), str(content["who"]))
        at = float(content["at"])
    except (ValueError, KeyError, TypeError):
        return None
    values: dict[str, Any] = {}
    if content.get("verdict") in ("", *VERDICTS):
        values["verdict"] = content["verdict"]
    if isinstance(content.get("note"), str):
        values["note"] = content["note"]
    if isinstance(content.get("star"), bool):
        values["star"] = content["star"]
    return key, at, values
