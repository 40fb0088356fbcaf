"""Selects documents of a run: wrong ones, those with an ending, those with a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from assay.core.errors import UnknownName, UserError
from assay.core.records.endings import ENDINGS
from assay.store.journal.rows import decode_verdict_value, parse_json
from assay.store.runs.run import Run

__all__ = ["DocumentSelection", "ScoreColumn", "SelectedDocument", "find_score_column", "select_documents"]

_MAX_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSelection:
    """Which documents of a run to show. Conditions are combined: all of them must hold."""

    tasks: Sequence[str] = ()
    """Only these tasks; empty: all."""

    metric: str = ""
    """`METRIC` or `METRIC,FILTER` whose score decides what is wrong; empty: the first metric of each task."""

    wrong: bool = False
    """Only documents without the full score, the lowest score first."""

    endings: Sequence[str] = ()
    """Only documents with one of these endings; empty: any."""

    numbers: Sequence[int] = ()
    """Only documents with one of these numbers; empty: any."""

    where: str = ""
    """Only documents that match this filter expression; empty: any."""

    @property
    def has_conditions(self) -> bool:
        """Whether some documents may not match, apart from those of other tasks."""
        return bool(self.wrong or self.endings or self.numbers or self.where.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreColumn:
    """One metric after one filter pipeline of a task, and its score for each document."""

    metric: str
    pipeline: str
    higher_is_better: bool
    full_score: float
    """1, or the best score of the task if that is higher; 0 or the lowest score if lower is better."""

    scores: dict[int, float]
    """By document, or by group of documents with the same verdicts."""

    def is_wrong(self, key: int) -> bool:
        """Whether a document or group has a score and it is not the full one."""
        score = self.scores.get(key)
        return score is not None and score != self.full_score

    def rank(self, score: float | None) -> float:
        """Return a number by which the worst scores come first."""
        return (score or 0.0) * (1 if self.higher_is_better else -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedDocument:
    """A document that matches a selection."""

    task: str
    number: int
    ending: str
    score: float | None


def select_documents(
    run: Run, selection: DocumentSelection, *, limit: int | None = None
) -> tuple[list[SelectedDocument], int]:
    """Return the matching documents and their number: tasks in the order of the run; documents by number, or the worst score first.

    With a limit, the first documents of each task are returned, the same number from each task where possible.

    Raises:
        UnknownName: The run has no such task, metric, ending or document.
        FilterError: The filter expression is invalid.
    """
    tasks = _find_tasks(run, selection.tasks)
    for ending in selection.endings:
        if ending not in (*ENDINGS, "open"):
            raise _build_unknown_name("ending", ending, list(ENDINGS), where="--ending")
    if selection.numbers:
        _check_numbers(run, tasks, selection.numbers)
    if not selection.has_conditions:  # the scores and endings of other documents are not needed
        counts = {task: run.journal.count_documents(task) for task in tasks}
        shares = _share_evenly(counts, limit)
        return [
            one
            for task in tasks
            for one in _describe_documents(
                run, task, run.journal.read_document_numbers(task, limit=shares[task]), selection.metric
            )
        ], sum(counts.values())
    if not selection.numbers and not selection.where.strip():
        found = {task: _find_documents(run, task, selection) for task in tasks}
        shares = _share_evenly({task: one.count for task, one in found.items()}, limit)
        return [document for task in tasks for document in found[task].take(shares[task])], sum(
            one.count for one in found.values()
        )
    by_task = {task: _select_from_task(run, task, selection) for task in tasks}
    if selection.where.strip():
        by_task = _keep_matching(run, by_task, selection.where)
    counts = {task: len(documents) for task, documents in by_task.items()}
    shares = _share_evenly(counts, limit)
    return [one for task in tasks for one in by_task[task][: shares[task]]], sum(counts.values())


@dataclass(frozen=True, slots=True)
class _FoundDocuments:
    """Documents that match, of which only those that are taken are read."""

    count: int
    take: Callable[[int], list[SelectedDocument]]
    """Returns the first ones."""


def _find_documents(run: Run, task: str, selection: DocumentSelection) -> _FoundDocuments:
    """Return the wrong documents of a task, or those with some endings."""
    if selection.wrong:
        return _find_wrong_documents(run, task, selection)
    counts = run.journal.count_outcomes(task)
    counts["open"] = run.journal.count_documents(task) - sum(counts.values())

    def take(limit: int) -> list[SelectedDocument]:
        numbers = run.journal.find_documents_by_outcome(task, selection.endings, limit=limit)
        return _describe_documents(run, task, numbers, selection.metric)

    return _FoundDocuments(sum(counts.get(ending, 0) for ending in set(selection.endings)), take)


def _find_wrong_documents(run: Run, task: str, selection: DocumentSelection) -> _FoundDocuments:
    """Return the documents without the full score, the worst first. Documents with the same verdicts are counted together."""
    groups = run.journal.count_verdicts(task)
    with run.journal.report_decode_errors():
        column = _choose_column(run, task, selection.metric, _read_verdict_groups(groups), is_complete=True)
    if column is None:
        return _FoundDocuments(0, lambda limit: [])
    endings = set(selection.endings)
    chosen = [
        key
        for key, (ending, _, _) in enumerate(groups)
        if column.is_wrong(key) and (not endings or ending in endings)
    ]
    scores = column.scores
    by_rank: dict[float, list[int]] = {}
    for key in sorted(chosen, key=lambda key: column.rank(scores[key])):
        by_rank.setdefault(column.rank(scores[key]), []).append(key)
    keys = {groups[key][:2]: key for key in chosen}

    def read(some: Sequence[int], limit: int = -1) -> list[SelectedDocument]:
        rows = run.journal.find_documents_by_verdicts(task, [groups[key][:2] for key in some], limit=limit)
        return [
            SelectedDocument(task=task, number=number, ending=ending, score=scores[keys[ending, verdicts]])
            for number, ending, verdicts in rows
        ]

    def take(limit: int) -> list[SelectedDocument]:
        whole: list[int] = []
        for same_score in by_rank.values():
            count = sum(groups[key][2] for key in same_score)
            if count > limit:
                last = read(same_score, limit)
                break
            whole += same_score
            limit -= count
        else:
            last = []
        first = read(whole) if whole else []
        first.sort(key=lambda one: (column.rank(one.score), one.number))
        return first + last

    return _FoundDocuments(sum(groups[key][2] for key in chosen), take)


def _read_verdict_groups(groups: Sequence[tuple[str, str, int]]) -> Iterator[tuple[str, str, int, str, Any]]:
    """Yield (pipeline, metric, number of the group, kind, value)."""
    for key, (_, content, _) in enumerate(groups):
        for pipeline, metric, kind, value, _ in parse_json(content):
            yield pipeline, metric, key, kind, decode_verdict_value(value)


def _share_evenly(counts: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return how many documents to take from each task: at most `limit`, the same number from each where possible.

    >>> _share_evenly({"long": 100, "short": 1}, 5)
    {'long': 4, 'short': 1}
    """
    left = sum(counts.values()) if limit is None else min(limit, sum(counts.values()))
    taken = dict.fromkeys(counts, 0)
    while left:
        for task, count in counts.items():
            if left and taken[task] < count:
                taken[task] += 1
                left -= 1
    return taken


def _check_numbers(run: Run, tasks: Sequence[str], numbers: Sequence[int]) -> None:
    known = {number for task in tasks for number in run.journal.find_document_numbers(task, numbers)}
    missing = [number for number in numbers if number not in known]
    if missing:
        everything = {number for task in tasks for number in run.journal.read_document_numbers(task)}
        raise UserError(
            f"the run has no document {missing[0]}", where="--document", hint=_describe_numbers(everything)
        )


def _keep_matching(
    run: Run, by_task: Mapping[str, Sequence[SelectedDocument]], where: str
) -> dict[str, list[SelectedDocument]]:
    from assay.store.filters.selection import select_matching_documents
    from assay.store.filters.syntax import FilterError

    try:
        matching = select_matching_documents(run, where)
    except FilterError as error:
        raise error.point_at(where) from None
    kept = {task: set(numbers) for task, numbers in matching.items()}
    return {
        task: [one for one in documents if one.number in kept.get(task, ())]
        for task, documents in by_task.items()
    }


def _find_tasks(run: Run, names: Sequence[str]) -> list[str]:
    """Return the tasks of the run with these names; a group stands for its members."""
    if not names:
        return list(run.tasks)
    wanted: list[str] = []
    for name in names:
        if name not in run.tasks and name not in run.groups:
            raise _build_unknown_name("task of the run", name, [*run.tasks, *run.groups], where="--tasks")
        wanted += _expand_group(run, name)
    return [task for task in run.tasks if task in wanted]


def _expand_group(run: Run, name: str) -> list[str]:
    if name in run.tasks:
        return [name]
    return [task for member in run.groups[name].get("members", ()) for task in _expand_group(run, member)]


def _describe_numbers(known: set[int]) -> str:
    if not known:
        return "the run has no documents"
    return f"its documents have the numbers {min(known)} to {max(known)}"


def _describe_documents(
    run: Run, task: str, numbers: Sequence[int], metric: str, column: ScoreColumn | None = None
) -> list[SelectedDocument]:
    if not numbers and not metric:
        return []
    endings = run.journal.read_endings(task, numbers)
    column = column or _find_score_column_of(run, task, numbers, metric)
    scores = column.scores if column else {}
    return [
        SelectedDocument(
            task=task, number=number, ending=endings.get(number, "open"), score=scores.get(number)
        )
        for number in numbers
    ]


def _select_from_task(run: Run, task: str, selection: DocumentSelection) -> list[SelectedDocument]:
    if selection.numbers:
        numbers = run.journal.find_document_numbers(task, selection.numbers)
    else:
        numbers = run.journal.read_document_numbers(task)
    # what is wrong depends on the best score of the task
    column = find_score_column(run, task, selection.metric) if selection.wrong else None
    if selection.wrong and column is None:
        return []
    found = [
        one
        for one in _describe_documents(run, task, numbers, selection.metric, column)
        if (not selection.endings or one.ending in selection.endings)
        and (column is None or column.is_wrong(one.number))
    ]
    if column is not None:
        found.sort(key=lambda one: (column.rank(one.score), one.number))
    return found


def _find_score_column_of(run: Run, task: str, numbers: Sequence[int], metric: str) -> ScoreColumn | None:
    """Return the score column with the scores of these documents. Reads other documents only if these do not tell the column."""
    column = find_score_column(run, task, metric, numbers)
    pipelines, metrics = _list_columns(run, task)
    name, _, pipeline = metric.partition(",")
    expected = (pipeline or next(iter(pipelines), ""), name or next(iter(metrics), ""))
    if column is None or (column.pipeline, column.metric) != expected:
        column = find_score_column(run, task, metric)
    return column


def find_score_column(
    run: Run, task: str, metric: str = "", documents: Sequence[int] | None = None
) -> ScoreColumn | None:
    """Return the scores of a metric (default: the first one with a score per document); None if there is none.

    With `documents`, only they are read.

    Raises:
        UnknownName: No task of the run has this metric.
    """
    verdicts = run.journal.read_verdicts(task, documents)
    return _choose_column(run, task, metric, verdicts, is_complete=documents is None)


def _choose_column(
    run: Run,
    task: str,
    metric: str,
    verdicts: Iterable[tuple[str, str, int, str, Any]],
    *,
    is_complete: bool,
) -> ScoreColumn | None:
    """Return the column of a metric. `is_complete`: these are the verdicts of all documents."""
    columns: dict[tuple[str, str], dict[int, float]] = {}
    for pipeline, name, document, kind, value in verdicts:
        if kind == "score" and isinstance(value, (int, float)):
            columns.setdefault((pipeline, name), {})[document] = float(value)
    pipelines, metrics = _list_columns(run, task)
    order = sorted(columns, key=lambda key: (_get_place(pipelines, key[0]), _get_place(metrics, key[1])))
    if metric:
        name, _, pipeline = metric.partition(",")
        order = [key for key in order if key[1] == name and pipeline in ("", key[0])]
        if not order and is_complete:
            _check_metric(run, metric)
    if not order:
        return None
    pipeline, name = order[0]
    direction = next(
        (
            one.higher_is_better
            for one in run.estimates
            if (one.task, one.pipeline, one.metric) == (task, pipeline, name)
        ),
        None,
    )
    scores = columns[pipeline, name]
    best = min(0.0, *scores.values()) if direction is False else max(1.0, *scores.values())
    return ScoreColumn(
        metric=name,
        pipeline=pipeline,
        higher_is_better=direction is not False,
        full_score=best,
        scores=scores,
    )


def _list_columns(run: Run, task: str) -> tuple[list[str], list[str]]:
    """Return the filter pipelines and metrics of a task, in the order of its file."""
    facts = run.tasks[task]
    return list(facts.get("pipelines", ())), list(facts.get("metrics", ()))


def _check_metric(run: Run, metric: str) -> None:
    known = {f"{one.metric},{one.pipeline}" for one in run.estimates}
    if metric not in known | {key.partition(",")[0] for key in known}:
        raise _build_unknown_name("metric of the run", metric, sorted(known), where="--metric")


def _build_unknown_name(kind: str, name: str, known: Sequence[str], *, where: str) -> UnknownName:
    close = get_close_matches(name, known, n=1)
    guess = f"did you mean `{close[0]}`? " if close else ""
    listed = ", ".join(known[:_MAX_LISTED]) + (" …" if len(known) > _MAX_LISTED else "")
    return UnknownName(f"no {kind} is called `{name}`", where=where, hint=f"{guess}available: {listed}")


def _get_place(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)
