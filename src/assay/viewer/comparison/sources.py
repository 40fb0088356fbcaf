"""Sources of a comparison: runs, models, and result files of lm_eval or lmms_eval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.core.entry_points import find_entry_points
from assay.core.errors import UnknownName
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import ScoreTableSource
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.lookup import find_run, find_run_folders
from assay.store.runs.run import Run
from assay.viewer.comparison.model_scores import ModelScoreTables

__all__ = ["MODEL_PREFIX", "open_score_tables", "open_source"]

MODEL_PREFIX = "model:"
"""The prefix of a model's name: `model:NAME` means its newest finished runs."""


def open_source(word: str | Path | Run, folders: Sequence[str | Path] = ()) -> ScoreTableSource:
    """Open the source that a word names.

    A word is a run (its id, a prefix of it, its folder, `latest`), result files of lm_eval or lmms_eval (a samples file
    or its folder), or `model:NAME` for the newest finished runs of a model.

    Raises:
        UnknownName: There is no such source.
    """
    if isinstance(word, Run):
        return open_score_tables(word.folder)
    if isinstance(word, str) and word.startswith(MODEL_PREFIX):
        return ModelScoreTables.find(word.removeprefix(MODEL_PREFIX), folders, open_score_tables)
    path = Path(word).expanduser()
    ours = path.name == JOURNAL_FILE or len(find_run_folders([path])) == 1
    if path.exists() and not ours:
        for plugin in find_entry_points("assay.compat"):
            found: ScoreTableSource | None = plugin.load().open_results(path)
            if found is not None:
                return found
    try:
        folder = find_run(word, folders)
    except UnknownName as error:
        if path.exists():
            raise UnknownName(
                f"`{word}` is neither a run nor a result folder of lm_eval or lmms_eval",
                hint=f"a run's folder holds {JOURNAL_FILE}; result folders hold samples_<task>_<date>.jsonl",
            ) from None
        raise error from None
    return open_score_tables(folder)


def open_score_tables(folder: Path) -> RunScoreTables:
    """Open a run with its latest scoring, if that covers all its tasks."""
    run = Run(folder)
    last = run.scored(None)
    if last is run or not set(last.tasks) >= set(run.tasks):
        return RunScoreTables(run)
    run.close()
    return RunScoreTables(last, f"{run.folder.name} (scoring {last.id})")
