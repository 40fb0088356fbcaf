"""What people mean by a run when they compare: one of ours, or files another harness wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.core.errors import UnknownName
from assay.core.plugins import plugins
from assay.store.finding import find_run, run_folders
from assay.store.journal import FILE_NAME
from assay.store.run_sheets import RunSheets
from assay.store.runs import Run
from assay.store.sheets import SheetSource
from assay.viewer.comparison.models import ModelSheets

__all__ = ["MODEL", "open_source", "run_sheets"]

MODEL = "model:"
"""Before the name of a model whose newest runs are meant."""


def open_source(word: str | Path | Run, folders: Sequence[str | Path] = ()) -> SheetSource:
    """A run (its id, the start of it, its folder, `latest`) or result files of lm-eval or lmms-eval (a samples file, or
    the folder it is in); or `model:NAME`, the newest runs of a model.

    Raises:
        UnknownName: There is neither.
    """
    if isinstance(word, Run):
        return run_sheets(word.folder)
    if isinstance(word, str) and word.startswith(MODEL):
        return ModelSheets.find(word.removeprefix(MODEL), folders, run_sheets)
    path = Path(word).expanduser()
    ours = path.name == FILE_NAME or len(run_folders([path])) == 1
    if path.exists() and not ours:
        for plugin in plugins("assay.compat"):
            found: SheetSource | None = plugin.load().open_results(path)
            if found is not None:
                return found
    try:
        folder = find_run(word, folders)
    except UnknownName as error:
        if path.exists():
            raise UnknownName(
                f"`{word}` is neither a run nor results of lm-eval or lmms-eval",
                hint=f"a run's folder holds {FILE_NAME}; result folders hold samples_<task>_<date>.jsonl",
            ) from None
        raise error from None
    return run_sheets(folder)


def run_sheets(folder: Path) -> RunSheets:
    """A run as it was scored the last time, if all of it was."""
    run = Run(folder)
    last = run.scored(None)
    if last is run or not set(last.tasks) >= set(run.tasks):
        return RunSheets(run)
    run.close()
    return RunSheets(last, f"{run.folder.name} (scoring {last.id})")
