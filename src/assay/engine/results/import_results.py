"""Import results of another harness as a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.entry_points import find_entry_points
from assay.core.errors import AssayError, UnknownName
from assay.core.fingerprints import digest_json
from assay.core.records.verdicts import Estimate
from assay.stats.intervals.confidence_intervals import encode_clusters, mean_interval
from assay.stats.numerics.exact_summation import to_float_array
from assay.store.documents.score_tables import ScoreTable, ScoreTableSource
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.imported_runs import ImportedRun, write_imported_run
from assay.store.runs.lookup import DEFAULT_FOLDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["import_results"]


def import_results(path: str | Path, output_path: str | Path | None = None) -> tuple[Path, bool]:
    """Import results as a run.

    Args:
        path: A folder of results, a results file, or a samples file of lm-eval or lmms-eval.
        output_path: The folder for the run; by default `./assay-runs`.

    Returns:
        The run's folder, and whether it is new: the same files are imported once.

    Raises:
        UnknownName: There are no results.
        DatasetError: A file is not what it should be.
    """
    place = Path(path).expanduser()
    opened = _open_results(place)
    if opened is None:
        what = "contains no results of lm-eval or lmms-eval" if place.exists() else "does not exist"
        raise UnknownName(
            f"`{path}` {what}",
            hint="pass a folder with samples_<task>_<date>.jsonl, or such a file (written with --log_samples)",
        )
    run, sheets = opened
    folder = Path(output_path or DEFAULT_FOLDER) / _build_name(run)
    if (folder / JOURNAL_FILE).is_file():
        return folder, False
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_imported_run(folder, run, _read_estimates(sheets))
    return folder, True


def _open_results(path: Path) -> tuple[ImportedRun, ScoreTableSource] | None:
    for plugin in find_entry_points("assay.compat"):
        found = plugin.load().open_imported_run(path)
        if found is not None:
            return found, found.files
    return None


def _build_name(run: ImportedRun) -> str:
    tasks = list(run.about["tasks"])
    words = [run.model, tasks[0], *([str(len(tasks) - 1)] if len(tasks) > 1 else [])]
    slug = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word.rpartition("/")[2]).strip("-") for word in words)
    return f"{slug[:60]}-{digest_json(dict(run.identity))[:8]}"


def _read_estimates(source: ScoreTableSource) -> list[Estimate]:
    """Read the estimates, with intervals for means; without a results file, compute the means of the scores."""
    sheets = {task: source.read_score_table(task) for task in source.tasks}
    told = source.read_estimates()
    if not told:
        return [
            estimate
            for sheet in sheets.values()
            for estimate in _estimate_means(sheet, _read_clusters(source, sheet))
        ]
    clusters = {task: _read_clusters(source, sheet) for task, sheet in sheets.items()}
    return [
        _add_interval(estimate, sheets.get(estimate.task), clusters.get(estimate.task)) for estimate in told
    ]


def _read_clusters(source: ScoreTableSource, sheet: ScoreTable) -> list[Any] | None:
    """Read the field that the task's `cluster_key` names; None if no document has it."""
    names = source.field(sheet.task, sheet.cluster_key) if sheet.cluster_key else []
    return names if any(name is not None for name in names) else None


def _add_interval(
    estimate: Estimate, sheet: ScoreTable | None, clusters: Sequence[Any] | None = None
) -> Estimate:
    column = None if sheet is None else sheet.columns.get((estimate.pipeline, estimate.metric))
    scores = None if column is None else _to_scores(column.values)
    if column is None or scores is None:
        return estimate
    scored = replace(estimate, scored=len(scores), unscored=len(column.values) - len(scores))
    if len(scores) < 2 or abs(float(scores.mean()) - estimate.value) > 1e-9:
        return scored  # not the mean of these scores
    names = None
    if clusters is not None:
        names = [name for name, value in zip(clusters, column.values, strict=True) if value is not None]
    try:
        found = mean_interval(scores, names)
    except AssayError:  # one cluster, or equal scores without a known range
        return scored
    count = encode_clusters(names)[1] if names is not None else len(scores)
    return replace(
        scored,
        interval=(found.low, found.high),
        interval_method=found.method,
        clusters=count if count < len(scores) else None,
    )


def _estimate_means(sheet: ScoreTable, clusters: Sequence[Any] | None) -> list[Estimate]:
    found = []
    for column in sheet.columns.values():
        scores = _to_scores(column.values)
        if scores is None or not len(scores):
            continue
        single = Estimate(
            task=sheet.task,
            metric=column.metric,
            pipeline=column.pipeline,
            value=float(scores.mean()),
            stderr=float(scores.std(ddof=1) / len(scores) ** 0.5) if len(scores) > 1 else None,
            method="mean",
            scored=len(scores),
            unscored=len(column.values) - len(scores),
            higher_is_better=column.higher_is_better,
        )
        found.append(_add_interval(single, sheet, clusters))
    return found


def _to_scores(values: Sequence[object]) -> NDArray[np.float64] | None:
    """Return the scores that exist; None if a value is not a number."""
    return to_float_array([value for value in values if value is not None])
