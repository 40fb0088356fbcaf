"""`--budget`, `--history`, `--subset`: choose the documents of each task that say most about a new model.

The choice replaces these options by the chosen documents, so that the run id depends on them, and a resumed, rescored or verified
run does not need the history again. `stats.subsets.design` has the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.entry_points import find_entry_points
from assay.core.errors import AssayError, ErrorGroup, InvalidOption, UnknownName
from assay.core.fingerprints import digest_json
from assay.core.options.run_spec import RunSpec
from assay.core.records.specs import TaskSpec
from assay.core.records.subsets import SIMPLE, STRATIFIED, DocumentSubset
from assay.engine.planning.manifests.run_names import get_output_folder
from assay.scoring.scorer import Scorer
from assay.stats.aggregations import find_aggregation_name
from assay.store.journal.rows import encode_fields
from assay.store.runs.lookup import DEFAULT_FOLDER, find_run
from assay.store.runs.run import Run
from assay.tasks.task import Task

if TYPE_CHECKING:
    from assay.store.documents.score_tables import ScoreTable, ScoreTableSource

__all__ = ["choose_subsets", "describe_subsets", "find_subset"]

Floats = NDArray[np.float64]

_MIN_COVERAGE = 0.5
"""A run of the history counts if it scored at least this share of the documents."""

MAX_SHOWN_GAIN = 100
"""Larger forecasts are shown as "more than" this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The scores of earlier models on the documents of a task."""

    scores: Floats
    """One row per run, one column per document; NaN: no score."""

    models: tuple[str, ...]
    runs: tuple[str, ...]


def find_subset(spec: RunSpec, task: str) -> DocumentSubset | None:
    """Return the subset of a task that the options contain; None: all documents."""
    if not isinstance(spec.subset, Mapping) or task not in spec.subset:
        return None
    return DocumentSubset.from_json(spec.subset[task])


def choose_subsets(
    spec: RunSpec, tasks: Mapping[str, TaskSpec], open_task: Callable[[TaskSpec], Task]
) -> tuple[RunSpec, list[str]]:
    """Return the options with the chosen documents in `subset`, instead of `budget` and `history`; and a note for each task that
    runs of the history do not help.

    Raises:
        InvalidOption: The subset of another run has other documents or lacks a task.
        UnknownName: A run of the history does not exist.
    """
    if spec.budget is None and spec.subset is None:
        return spec, []
    places = list(dict.fromkeys((get_output_folder(spec), Path(DEFAULT_FOLDER))))
    if spec.subset is not None:
        given = spec.subset if isinstance(spec.subset, Mapping) else _read_subset(spec.subset, places)
        kept = {name: _check_subset(given, open_task(task)) for name, task in tasks.items()}
        return replace(
            spec, subset={name: one.to_json() for name, one in kept.items() if one is not None}
        ), []
    chosen: dict[str, Any] = {}
    notes: list[str] = []
    with ExitStack() as opened:
        sources = []
        problems: list[AssayError] = []
        for word in dict.fromkeys(spec.history):
            try:
                sources.append(_open_source(word, places))
            except AssayError as error:
                problems.append(error)
        for source in sources:
            opened.callback(source.close)
        if problems:
            raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
        for name, task_spec in tasks.items():
            subset = _choose_subset(spec, open_task(task_spec), sources, notes)
            if subset is not None:
                chosen[name] = subset.to_json()
    return replace(spec, budget=None, history=[], subset=chosen or None), notes


def describe_subsets(spec: RunSpec) -> list[str]:
    """Return a note for each task whose documents are a subset, and why."""
    if not isinstance(spec.subset, Mapping):
        return []
    from assay.stats.subsets.design import MIN_GAIN, MIN_HISTORY  # most runs evaluate all documents

    notes = []
    for name in spec.subset:
        subset = find_subset(spec, name)
        if subset is None:
            continue
        line = f"{name}: {subset.sampled} of {subset.documents} documents, weighted; {subset.method}"
        if subset.method == STRATIFIED:
            line += f", {len(subset.sizes)} strata from {len(subset.history)} runs"
        if subset.gain is not None:
            gains = f"{_format_gain(subset.gain)} (worst {_format_gain(subset.worst_gain)})"
            if subset.method == STRATIFIED:
                line += f"; worth {gains} times as many random documents, by holding out each model of the history"
            else:
                line += f"; strata would be worth only {gains} times as many documents (at least {MIN_GAIN} is required)"
        elif not subset.metric:
            line += "; without strata, because none of its metrics is a mean of document scores"
        elif subset.history:
            line += f"; without strata, because they need the scores of {MIN_HISTORY} different models"
        notes.append(line)
    return notes


def _format_gain(gain: float | None) -> str:
    """Format a gain. Large ones are not known exactly: the variance of the design can be 0 for a model of the history.

    >>> _format_gain(1.234), _format_gain(1000.0)
    ('1.23', 'more than 100')
    """
    return (
        "unknown"
        if gain is None
        else f"{gain:.2f}"
        if gain <= MAX_SHOWN_GAIN
        else f"more than {MAX_SHOWN_GAIN}"
    )


def _choose_subset(
    spec: RunSpec, task: Task, sources: Sequence[ScoreTableSource], notes: list[str]
) -> DocumentSubset | None:
    """Choose the documents of a task; None if its filters need all documents, or the budget does not leave any out."""
    from assay.stats.subsets.design import choose_design, draw_documents

    scorer = Scorer.from_spec(task.spec, tags=spec.reasoning_tags)
    total = len(task.rows)
    budget = spec.budget or total
    if budget >= total or not all(pipeline.per_document for pipeline in scorer.pipelines):
        return None
    means = [
        metric
        for metric in scorer.metrics
        if find_aggregation_name(scorer.find_report(metric).aggregation) in ("mean", "nanmean")
    ]
    digests = _digest_documents(task)
    metric = means[0] if means else ""
    ignored: dict[str, str] = {}
    history = _read_history(task.name, metric, digests, sources, ignored) if means else None
    if ignored:
        listed = ", ".join(f"{run} ({why})" for run, why in ignored.items())
        notes.append(
            f"{task.name}: {len(ignored)} of {len(sources)} runs of the history are ignored: {listed}"
        )
    runs: tuple[str, ...] = ()
    forecast = None
    if history is None:
        design, _ = choose_design(np.zeros((1, total)), budget)
    else:
        design, forecast = choose_design(history.scores, budget, history.models)
        runs = history.runs
    drawn = draw_documents(design, f"{spec.seed[0]} {task.name} subset")
    return DocumentSubset(
        method=STRATIFIED if design.is_stratified else SIMPLE,
        sizes=tuple(len(stratum) for stratum in design.strata),
        members=tuple(map(tuple, drawn)),
        content=_digest_drawn(digests, drawn),
        history=runs,
        gain=None if forecast is None else round(forecast.median, 4),
        worst_gain=None if forecast is None else round(forecast.worst, 4),
        metric=metric,
    )


def _digest_documents(task: Task, indices: Sequence[int] | None = None) -> list[str]:
    """Return a digest of each document, or of those with the given indices."""
    from assay.store.documents.run_score_tables import hash_content  # most runs evaluate all documents

    rows = task.rows if indices is None else (task.rows[index] for index in indices)
    return [hash_content(encode_fields(row)) for row in rows]


def _digest_drawn(digests: Sequence[str], drawn: Sequence[Sequence[int]]) -> str:
    return digest_json([[digests[index] for index in stratum] for stratum in drawn])


def _read_history(
    task: str,
    metric: str,
    digests: Sequence[str],
    sources: Sequence[ScoreTableSource],
    ignored: dict[str, str],
) -> _History | None:
    """Read the scores of the sources that have the task; None if there are none. `ignored` gets the others, with the reason."""
    rows, models, runs = [], [], []
    for source in sources:
        if task not in source.tasks:
            ignored[source.name] = "without the task"
            continue
        scores = _align_scores(source.read_score_table(task, "files"), metric, digests)
        if scores is None:
            ignored[source.name] = f"without scores of {metric}"
            continue
        known = int(np.isfinite(scores).sum())
        if known < _MIN_COVERAGE * len(scores):
            ignored[source.name] = (
                f"scores for {known} of {len(scores)} documents, at least half are required"
            )
            continue
        rows.append(scores)
        models.append(f"{source.model} {source.facts.get('revision') or ''}")
        runs.append(source.name)
    return _History(scores=np.array(rows), models=tuple(models), runs=tuple(runs)) if rows else None


def _align_scores(table: ScoreTable, metric: str, digests: Sequence[str]) -> Floats | None:
    """Return the scores of a table in the order of the task's documents; None without numeric scores of the metric.

    Documents are matched by contents; by number if the source does not store contents.
    """
    column = next((one for one in table.columns.values() if one.metric == metric), None)
    if column is None:
        return None
    numbers: dict[Any, list[int]] = {}
    for index, digest in enumerate(digests):
        numbers.setdefault(digest, []).append(index)
    scores = np.full(len(digests), np.nan)
    for document, digest, value in zip(table.documents, table.content_digests, column.values, strict=True):
        if isinstance(value, Mapping):
            value = value.get(column.score_key)
        if not isinstance(value, (int, float)):
            continue
        if digest is None:
            where = [document] if document < len(digests) else []
        else:
            where = numbers.get(digest, [])
        for index in where if len(where) < 2 or document not in where else [document]:
            scores[index] = value
    return scores


def _open_source(word: str, places: Sequence[Path]) -> ScoreTableSource:
    """Open a run, or result files of another harness."""
    from assay.store.documents.run_score_tables import RunScoreTables

    path = Path(word).expanduser()
    try:
        return RunScoreTables(Run(find_run(word, places)).scored(None))
    except UnknownName as error:
        for plugin in find_entry_points("assay.compat") if path.exists() else ():
            found: ScoreTableSource | None = plugin.load().open_results(path)
            if found is not None:
                return found
        raise UnknownName(error.what, where="--history", hint=error.hint) from None


def _read_subset(word: str, places: Sequence[Path]) -> Mapping[str, Any]:
    """Return the subset of a stored run."""
    run = Run(find_run(word, places))
    try:
        found = run.facts.get("spec", {}).get("subset")
    finally:
        run.close()
    if not isinstance(found, Mapping):
        raise InvalidOption(
            f"the run `{run.id}` has no subset", where="--subset", hint="it was started without --budget"
        )
    return found


def _check_subset(given: Mapping[str, Any], task: Task) -> DocumentSubset | None:
    """Return the subset of a task. A task that is missing asked all its documents.

    Raises:
        InvalidOption: The task has other documents.
    """
    if task.name not in given:
        return None
    subset = DocumentSubset.from_json(given[task.name])
    if subset.documents != len(task.rows) or subset.indices[-1] >= len(task.rows):
        raise InvalidOption(
            f"the subset of `{task.name}` is for {subset.documents} documents; the task has {len(task.rows)}",
            where="--subset",
        )
    chosen = dict(zip(subset.indices, _digest_documents(task, subset.indices), strict=True))
    if subset.content != digest_json([[chosen[index] for index in drawn] for drawn in subset.members]):
        raise InvalidOption(
            f"the documents of `{task.name}` changed since the subset was chosen",
            where="--subset",
            hint="choose a new one with --budget and --history",
        )
    return subset
