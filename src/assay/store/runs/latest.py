"""Which run `latest` means: the one that this user finished or displayed last in a folder, or from a working directory.

The working directory counts because runs can be stored elsewhere (`--output_path`): a gate must not take an older run for them.
The start time of a run does not tell: a command whose run is already finished displays it without sending a request, and
another run may have started later.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from assay.core.fingerprints import digest_bytes
from assay.core.home import assay_home
from assay.store.journal.journal import JOURNAL_FILE

__all__ = ["find_latest", "record_latest"]


def record_latest(run: Path) -> None:
    """Remember that the user finished or displayed a run. Errors are ignored: the record is a convenience."""
    folder = run.resolve()
    record = json.dumps({"run": str(folder), "at": time.time()})
    with suppress(OSError):
        for path in (_get_record_path(str(folder.parent)), _get_record_path(_name_working_directory())):
            path.parent.mkdir(parents=True, exist_ok=True)
            waiting = path.with_suffix(f".{time.time_ns()}")
            waiting.write_text(record, "utf-8")
            waiting.replace(path)


def find_latest(runs: Sequence[Path], *, here: bool = False) -> Path | None:
    """Return which of these runs the user finished or displayed last; None without a record.

    `here`: also runs in other folders that were finished or displayed from the working directory.
    """
    known = {run.resolve(): run for run in runs}
    records = [record for parent in {run.parent for run in known} if (record := _read_record(str(parent)))]
    if here and (record := _read_record(_name_working_directory())):
        records.append(record)
        if record[1] not in known and (record[1] / JOURNAL_FILE).is_file():
            known[record[1]] = _shorten(record[1])
    for _, folder in sorted(records, reverse=True):
        if folder in known:
            return known[folder]
    return None


def _shorten(folder: Path) -> Path:
    """Return the path relative to the working directory if the folder is inside."""
    here = Path.cwd().resolve()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _name_working_directory() -> str:
    return f"from {Path.cwd().resolve()}"


def _read_record(name: str) -> tuple[float, Path] | None:
    try:
        record = json.loads(_get_record_path(name).read_text("utf-8"))
        return float(record["at"]), Path(record["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _get_record_path(name: str) -> Path:
    return assay_home() / "latest" / f"{digest_bytes(name.encode('utf-8', 'surrogateescape'))[:24]}.json"
