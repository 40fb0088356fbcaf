"""Snapshots of a workspace: content-addressed files on disk, and the differences between two snapshots.

    blobs/ab/abcdef…      the content of a file, named by its SHA-256
    trees/012345….json    the files of a snapshot, named by the digest of their paths, modes and contents

Files are written under another name first and renamed, so a killed process leaves no half-written one. Equal contents are stored
once, so a snapshot costs what changed since the snapshots before it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import AssayError
from assay.core.fingerprints import digest_json

__all__ = ["FileEntry", "SnapshotError", "SnapshotStore", "diff_snapshots"]

FileKind = Literal["file", "folder", "link", "hardlink", "fifo"]

_MAX_TEXT_BYTES = 256 << 10
"""Size of the largest file whose text is compared line by line."""

_MAX_COMPARED_LINES = 1000
"""Lines that are compared after the equal ones at both ends; `difflib` takes quadratic time."""


class SnapshotError(AssayError):
    """A snapshot does not exist, or its files are damaged."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a snapshot."""

    path: str
    """Relative to the workspace. Bytes that are not UTF-8 are surrogates, as in `os.fsdecode`."""

    kind: FileKind
    mode: int = 0o644
    size: int = 0
    sha256: str = ""
    target: str = ""
    """Where a symbolic link points, or the path with which a hard link shares its content."""

    modified_ns: int = 0
    """Restored with the file, but not part of the identity of the snapshot."""

    def to_json(self) -> list[Any]:
        """Return the fields that are part of the identity of a snapshot."""
        return [self.path, self.kind, self.mode, self.size, self.sha256, self.target]


class SnapshotStore:
    """The snapshots in a folder. Several processes may use the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add_content(self, content: bytes) -> str:
        """Store the content of a file; return its SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._blob(digest)
        if not path.exists():
            _write_renamed(path, content)
        return digest

    def read_content(self, entry: FileEntry) -> bytes:
        """Return the content of a file.

        Raises:
            SnapshotError: The content is missing or damaged.
        """
        path = self._blob(entry.sha256)
        try:
            content = path.read_bytes()
        except OSError as problem:
            raise SnapshotError(f"the content of `{entry.path}` is missing: {problem}") from None
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise SnapshotError(f"the content of `{entry.path}` is damaged: {path}")
        return content

    def add_snapshot(self, entries: Iterable[FileEntry]) -> str:
        """Store the list of files; return the id of the snapshot, the same for the same files."""
        found = sorted(entries, key=lambda entry: entry.path)
        name = digest_json([entry.to_json() for entry in found])
        path = self._tree(name)
        if not path.exists():
            lines = [[*entry.to_json(), entry.modified_ns] for entry in found]
            _write_renamed(path, json.dumps(lines).encode())
        return name

    def read_snapshot(self, name: str) -> list[FileEntry]:
        """Return the files of a snapshot, folders before what they contain.

        Raises:
            SnapshotError: There is no such snapshot, or it is damaged.
        """
        path = self._tree(name)
        try:
            entries = [FileEntry(*line) for line in json.loads(path.read_bytes())]
        except FileNotFoundError:
            raise SnapshotError(f"there is no snapshot `{name}`", where=str(self._folder)) from None
        except (OSError, ValueError, TypeError) as problem:
            raise SnapshotError(f"the snapshot `{name}` is damaged: {problem}") from None
        if digest_json([entry.to_json() for entry in entries]) != name:
            raise SnapshotError(f"the snapshot `{name}` is damaged: {path}")
        return entries

    def import_folder(self, folder: Path, *, max_files: int, max_bytes: int) -> str:
        """Store a copy of a folder of this machine as a snapshot. Links are stored as links and not followed.

        Raises:
            SnapshotError: The folder has too many files or bytes, a special file or an unreadable one.
        """
        entries: list[FileEntry] = []
        total = 0
        for root, folders, names in os.walk(folder, onerror=_raise_unreadable):
            for name in sorted([*folders, *names]):
                path = Path(root, name)
                entry, content = _read_entry(path, path.relative_to(folder).as_posix())
                total += len(content)
                if len(entries) >= max_files or total > max_bytes:
                    raise SnapshotError(
                        f"the folder has more than {max_files} files or {max_bytes} bytes", where=str(folder)
                    )
                if entry.kind == "file":
                    entry = replace(entry, sha256=self.add_content(content))
                entries.append(entry)
        return self.add_snapshot(entries)

    def _blob(self, digest: str) -> Path:
        return self._folder / "blobs" / digest[:2] / digest

    def _tree(self, name: str) -> Path:
        if not name.isalnum():
            raise SnapshotError(f"`{name}` is not the id of a snapshot")
        return self._folder / "trees" / f"{name}.json"


def diff_snapshots(
    store: SnapshotStore, before: Sequence[FileEntry], after: Sequence[FileEntry], *, max_bytes: int = 64_000
) -> str:
    """Return the differences as a unified diff: lines of text files, sizes of others. Longer ones are cut, with a line that says so."""
    old, new = {entry.path: entry for entry in before}, {entry.path: entry for entry in after}
    parts: list[str] = []
    length = 0
    changed = [path for path in sorted({*old, *new}) if _differ(old.get(path), new.get(path))]
    for number, path in enumerate(changed):
        part = _describe_change(store, path, old, new)
        length += len(part)
        if length > max_bytes:
            parts.append(part[: max(0, len(part) - (length - max_bytes))])
            parts.append(f"\n[the diff is cut at {max_bytes} characters; {len(changed) - number} of {len(changed)} "
                         "changed files are incomplete or missing]\n")  # fmt: skip
            break
        parts.append(part)
    return "".join(parts)


def _differ(old: FileEntry | None, new: FileEntry | None) -> bool:
    return old is None or new is None or old.to_json() != new.to_json()


def _describe_change(
    store: SnapshotStore, path: str, old: Mapping[str, FileEntry], new: Mapping[str, FileEntry]
) -> str:
    before, after = old.get(path), new.get(path)
    shown = json.dumps(path)[1:-1]  # a line break in a name must not look like a line of the diff
    texts = _read_text(store, before, old), _read_text(store, after, new)
    if texts[0] is None or texts[1] is None or {_kind(before), _kind(after)} - {"", "file"}:
        return f"{shown}: {_describe_entry(before)} -> {_describe_entry(after)}\n"
    header = f"--- {f'a/{shown}' if before else '/dev/null'}\n+++ {f'b/{shown}' if after else '/dev/null'}\n"
    mode = ""
    if before and after and before.mode != after.mode:
        mode = f"{shown}: mode {before.mode:04o} -> {after.mode:04o}\n"
    if texts[0] == texts[1]:
        return mode or f"{shown}: {_describe_entry(before)} -> {_describe_entry(after)}\n"
    return mode + header + "".join(_diff_lines(_split_lines(texts[0]), _split_lines(texts[1])))


def _kind(entry: FileEntry | None) -> str:
    return "" if entry is None else "file" if entry.kind == "hardlink" else entry.kind


def _describe_entry(entry: FileEntry | None) -> str:
    if entry is None:
        return "absent"
    match entry.kind:
        case "link" | "hardlink":
            return f"{entry.kind} to {json.dumps(entry.target)}"
        case "file":
            return f"file of {entry.size} bytes, mode {entry.mode:04o}, {entry.sha256[:12]}"
    return f"{entry.kind}, mode {entry.mode:04o}"


def _read_text(store: SnapshotStore, entry: FileEntry | None, entries: Mapping[str, FileEntry]) -> str | None:
    """Return the text of a file, "" for no file, or None if it is too large or not text."""
    if entry is not None and entry.kind == "hardlink":
        entry = entries.get(entry.target)
    if entry is None:
        return ""
    if entry.kind != "file" or entry.size > _MAX_TEXT_BYTES:
        return None
    content = store.read_content(entry)
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _split_lines(text: str) -> list[str]:
    """Return the lines; the last one has a mark if it does not end with a line break, as in `diff`."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _diff_lines(old: list[str], new: list[str]) -> Iterable[str]:
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if max(len(old), len(new)) - start - end > _MAX_COMPARED_LINES:
        gone, come = old[start : len(old) - end], new[start : len(new) - end]
        yield f"@@ -{start + 1},{len(gone)} +{start + 1},{len(come)} @@\n"
        yield from (f"-{line}\n" for line in gone)
        yield from (f"+{line}\n" for line in come)
        return
    first = max(0, start - 3)
    lines = difflib.unified_diff(
        old[first : len(old) - max(0, end - 3)], new[first : len(new) - max(0, end - 3)], n=3, lineterm=""
    )
    for number, line in enumerate(lines):
        if number >= 2:  # without the header
            yield (_shift(line, first) if line.startswith("@@") else line) + "\n"


def _shift(line: str, by: int) -> str:
    """Add to the line numbers of `@@ -1,2 +3,4 @@`."""
    _, old, new, _ = line.split(" ")
    moved = []
    for word in (old, new):
        number, comma, count = word[1:].partition(",")
        moved.append(f"{word[0]}{int(number) + by}{comma}{count}")
    return f"@@ {moved[0]} {moved[1]} @@"


def _read_entry(path: Path, name: str) -> tuple[FileEntry, bytes]:
    try:
        status = path.lstat()
        mode, modified = status.st_mode & 0o777, status.st_mtime_ns
        if path.is_symlink():
            return FileEntry(name, "link", 0o777, target=str(path.readlink())), b""
        if path.is_dir():
            return FileEntry(name, "folder", mode | 0o700, modified_ns=modified), b""
        if path.is_file():
            content = path.read_bytes()
            return FileEntry(name, "file", mode | 0o600, len(content), modified_ns=modified), content
    except OSError as problem:
        _raise_unreadable(problem)
    raise SnapshotError(
        "the folder has a file that is neither a regular file, a folder nor a link", where=str(path)
    )


def _raise_unreadable(problem: OSError) -> None:
    raise SnapshotError(f"cannot read the folder: {problem}") from None


def _write_renamed(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as problem:
        with suppress(OSError):
            fresh.unlink()
        raise SnapshotError(f"cannot write a snapshot: {problem}", where=str(path.parent)) from None
