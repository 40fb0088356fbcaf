"""Which run `latest` means: the one that this user finished or displayed last in a folder.

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

__all__ = ["find_latest", "record_latest"]


def record_latest(run: Path) -> None:
    """Remember that the user finished or displayed a run. Errors are ignored: the record is a convenience."""
    folder = run.resolve()
    path = _get_record_path(folder.parent)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(f".{time.time_ns()}")
        waiting.write_text(json.dumps({"run": str(folder), "at": time.time()}), "utf-8")
        waiting.replace(path)


def find_latest(runs: Sequence[Path]) -> Path | None:
    """Return which of these runs the user finished or displayed last; None without a record."""
    known = {run.resolve(): run for run in runs}
    records = [record for parent in {run.parent for run in known} if (record := _read_record(parent))]
    for _, folder in sorted(records, reverse=True):
        if folder in known:
            return known[folder]
    return None


def _read_record(parent: Path) -> tuple[float, Path] | None:
    try:
        record = json.loads(_get_record_path(parent).read_text("utf-8"))
        return float(record["at"]), Path(record["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _get_record_path(parent: Path) -> Path:
    return (
        assay_home() / "latest" / f"{digest_bytes(str(parent).encode('utf-8', 'surrogateescape'))[:24]}.json"
    )
