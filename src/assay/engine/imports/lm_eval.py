"""Results of lm-eval and lmms-eval. The package `assay_compat` reads them; it is found through its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.core.entry_points import find_entry_points
from assay.core.errors import DatasetError
from assay.store.runs.imported_runs import ImportedRun

__all__ = ["detect", "read"]


def detect(path: Path) -> bool:
    """Whether a path is a samples file, a results file with samples beside it, or a folder of them."""
    return any(plugin.load().has_results(path) for plugin in find_entry_points("assay.compat"))


def read(path: Path) -> Iterator[ImportedRun]:
    """Read the newest results of each task as one run."""
    for plugin in find_entry_points("assay.compat"):
        found: ImportedRun | None = plugin.load().read_imported_run(path)
        if found is not None:
            yield found
            return
    raise DatasetError(
        "no samples of lm-eval or lmms-eval",
        where=str(path),
        hint="pass a folder with samples_<task>_<date>.jsonl, or such a file (written with --log_samples)",
    )
