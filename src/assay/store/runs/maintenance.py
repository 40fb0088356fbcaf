"""Removes and repairs runs."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.core.errors import OutputError
from assay.core.fingerprints import digest_json
from assay.store.database.locks import RunLock
from assay.store.database.schema import JOURNAL_SCHEMA
from assay.store.integrity.damage import describe_damage
from assay.store.integrity.repair import RepairResult, repair_database
from assay.store.journal.journal import JOURNAL_FILE, Journal

__all__ = ["remove_run", "repair_run"]

_RUN_FILE_PATTERNS = ("journal.*", "journal.sqlite-*", "manifest.json*", "files.json", "lock", "tags.json")


def remove_run(folder: Path) -> list[Path]:
    """Delete the files of a run; return other files that remain in its folder.

    Raises:
        RunLocked: A process is writing to the run.
        OutputError: A file cannot be deleted.
    """
    lock = RunLock(folder)
    lock.acquire()
    try:
        for pattern in _RUN_FILE_PATTERNS:
            for file in folder.glob(pattern):
                file.unlink()
        for name in ("scorings", "media"):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
    except OSError as error:
        raise OutputError(f"cannot remove the run: {error.strerror}", where=str(error.filename)) from None
    finally:
        lock.release()
    remaining = sorted(folder.iterdir())
    if not remaining:
        with suppress(OSError):
            folder.rmdir()
    return remaining


def repair_run(folder: Path) -> RepairResult | None:
    """Replace a damaged journal by a repaired one; return None if it is intact.

    Raises:
        RunLocked: A process is writing to the run.
    """
    path = folder / JOURNAL_FILE
    lock = RunLock(folder)
    lock.acquire()
    try:
        if not describe_damage(path, thorough=True):
            return None
        result = repair_database(path, JOURNAL_SCHEMA)
    finally:
        lock.release()
    journal = Journal.open_for_writing(folder)
    try:
        journal.set_facts(_read_manifest_facts(folder / "manifest.json")).result()
    finally:
        journal.close()
    return result


def _read_manifest_facts(manifest: Path) -> dict[str, Any]:
    """Return the facts of the manifest, so that a run without a journal can be listed and resumed."""
    try:
        content = json.loads(manifest.read_text("utf-8"))
        check = content.pop("check")
    except (OSError, ValueError, KeyError, AttributeError):
        return {}
    if check != digest_json(content):
        return {}
    return {
        "run_id": content["run_id"],
        "digest": content["digest"],
        "model": content["model"]["name"],
        "spec": content["options"],
        "manifest": content,
        "top": list(content["groups"]) or list(content["tasks"]),
        "tasks": {
            name: {"documents": task["documents"], "path": task["path"], "version": task["version"]}
            for name, task in content["tasks"].items()
        },
        "groups": {},
    }
