"""The scores of several runs as one table, with the significantly best ones marked."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import AssayError, UnknownName
from assay.core.records.verdicts import Estimate
from assay.stats.numerics.distributions import normal_cdf
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import DigestKind, ScoreTable, ScoreTableSource
from assay.viewer.comparison.records import CompareOptions, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.results.run_overview import is_share
from assay.viewer.results.score_rows import iterate_score_rows

__all__ = ["Matrix", "MatrixCell", "MatrixColumn", "MatrixRow", "build_matrix"]

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """The score of one run."""

    value: float
    stderr: float | None = None
    interval: tuple[float, float] | None = None
    scored: int = 0
    best: bool = False
    """Whether it is significantly better than the score of every other run."""

    clusters: int | None = None
    """Number of clusters if the interval is clustered."""

    source: int = 0
    """The place of the run among the runs of the matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixColumn:
    """The column of one run."""

    label: str
    """The model if it distinguishes the runs, else the run's id."""

    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One metric of a task or group."""

    task: str
    label: str
    metric: str
    pipeline: str
    cells: tuple[MatrixCell | None, ...]
    depth: int = 0
    group: bool = False
    higher_is_better: bool | None = None
    share: bool = True

    @property
    def measure(self) -> str:
        """The metric, with the filter if it is not the default one."""
        return self.metric if self.pipeline in ("", "none") else f"{self.metric} ({self.pipeline})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Tasks in rows, runs in columns."""

    columns: tuple[MatrixColumn, ...]
    rows: tuple[MatrixRow, ...]
    notes: tuple[str, ...] = ()


def build_matrix(
    sources: Sequence[ScoreTableSource],
    *,
    tasks: Sequence[str] = (),
    metrics: Sequence[str] = (),
    all_metrics: bool = False,
    best: bool = True,
    labels: Sequence[str] = (),
    left_out: Sequence[Collection[str]] = (),
) -> Matrix:
    """Build the table of some runs.

    It has the first metric of each task and group; `metrics` selects others, `all_metrics` takes all. `best` marks scores
    that are significantly better than all others, by paired documents where possible. `labels` replaces the column labels.
    `left_out`: for each run, the tasks and groups whose scores are not shown.

    Raises:
        UnknownName: No run has such a task or metric.
    """
    columns = _build_columns(sources)
    if labels:
        columns = tuple(replace(column, label=label) for column, label in zip(columns, labels, strict=True))
    numbers = [
        {
            (one.task, one.metric, one.pipeline): one
            for one in source.read_estimates()
            if _is_number(one.value) and one.task not in hidden
        }
        for source, hidden in zip(sources, left_out or [()] * len(sources), strict=True)
    ]
    rows = []
    for depth, task, label, group, key in _iterate_keys(sources, numbers, every=all_metrics or bool(metrics)):
        if (tasks and task not in tasks) or (metrics and key[1] not in metrics):
            continue
        found = [known.get(key) for known in numbers]
        known = [one for one in found if one is not None]
        rows.append(
            MatrixRow(
                task=task,
                label=label,
                metric=key[1],
                pipeline=key[2],
                cells=tuple(
                    None if one is None else _build_cell(one, place) for place, one in enumerate(found)
                ),
                depth=depth,
                group=group,
                higher_is_better=known[0].higher_is_better,
                share=all(is_share(one) for one in known),
            )
        )
    _check_selection(rows, sources, tasks, metrics)
    notes: list[str] = []
    if best and len(sources) > 1:
        rows = _mark_best(rows, sources, notes)
    return Matrix(columns=columns, rows=tuple(rows), notes=tuple(dict.fromkeys(notes)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _build_cell(estimate: Estimate, source: int) -> MatrixCell:
    return MatrixCell(
        value=float(estimate.value),
        stderr=estimate.stderr,
        interval=estimate.interval,
        scored=estimate.scored,
        clusters=estimate.clusters,
        source=source,
    )


def _build_columns(sources: Sequence[ScoreTableSource]) -> tuple[MatrixColumn, ...]:
    models = [source.model for source in sources]
    is_unique = len(set(models)) == len(models) and all(models)
    names = [source.name for source in sources]
    labels = list(models) if is_unique else list(names)
    for position, label in enumerate(labels):  # the same run twice
        if labels.index(label) != position:
            labels[position] = f"{label} [{position + 1}]"
    return tuple(
        MatrixColumn(label=label, name=source.name, model=source.model)
        for label, source in zip(labels, sources, strict=True)
    )


RowKey = tuple[str, str, str]


def _iterate_keys(
    sources: Sequence[ScoreTableSource], numbers: Sequence[dict[RowKey, Estimate]], *, every: bool
) -> Iterator[tuple[int, str, str, bool, RowKey]]:
    """Yield (depth, task, label, group, key) of every row: in the order of the first run, then what only others have."""
    seen: set[RowKey] = set()
    tasks: set[str] = set()
    for source, known in zip(sources, numbers, strict=True):
        for depth, task, label, group, estimate in _iterate_estimates(source, known):
            key = (estimate.task, estimate.metric, estimate.pipeline)
            if key in seen or (task in tasks and not every):
                continue
            seen.add(key)
            tasks.add(task)
            yield depth, task, label, group, key


def _iterate_estimates(
    source: ScoreTableSource, known: dict[RowKey, Estimate]
) -> Iterator[tuple[int, str, str, bool, Estimate]]:
    if isinstance(source, RunScoreTables):
        run = source.run
        for depth, name, facts, estimate in iterate_score_rows(run):
            if estimate is not None and (name, estimate.metric, estimate.pipeline) in known:
                yield depth, name, str(facts.get("alias") or name), name in run.groups, estimate
        return
    for estimate in known.values():
        yield 0, estimate.task, estimate.task, estimate.task not in source.tasks, estimate


def _check_selection(
    rows: Sequence[MatrixRow],
    sources: Sequence[ScoreTableSource],
    tasks: Sequence[str],
    metrics: Sequence[str],
) -> None:
    numbers = [one for source in sources for one in source.read_estimates()]
    known = list(dict.fromkeys(one.task for one in numbers))
    for task in tasks:
        if task not in known:
            raise UnknownName(f"no run has a score for `{task}`", hint=f"they have: {', '.join(known)}")
    measures = list(dict.fromkeys(one.metric for one in numbers))
    for metric in metrics:
        if metric not in measures:
            raise UnknownName(f"no run has the metric `{metric}`", hint=f"they have: {', '.join(measures)}")
    if not rows:
        raise UnknownName("the runs have no scores", hint="`assay runs` shows whether they are finished")


def _mark_best(
    rows: list[MatrixRow], sources: Sequence[ScoreTableSource], notes: list[str]
) -> list[MatrixRow]:
    """Mark the scores that are significantly better than all others."""
    pairs = _PairComparer(sources)
    marked = []
    for row in rows:
        there = [position for position, cell in enumerate(row.cells) if cell is not None]
        if len(there) < 2 or row.higher_is_better is None:
            marked.append(row)
            continue
        sign = 1 if row.higher_is_better else -1
        leader = max(there, key=lambda position: sign * _read_value(row, position))
        others = [position for position in there if position != leader]
        allowed = (1 - _LEVEL) / len(others)  # Bonferroni: the leader is tested against every other run
        if all(_compute_p_value(row, leader, other, pairs, notes) < allowed for other in others):
            cells = tuple(
                replace(cell, best=True) if cell is not None and position == leader else cell
                for position, cell in enumerate(row.cells)
            )
            row = replace(row, cells=cells)
        marked.append(row)
    return marked


def _read_value(row: MatrixRow, position: int) -> float:
    cell = row.cells[position]
    return math.nan if cell is None else cell.value


def _compute_p_value(row: MatrixRow, one: int, other: int, pairs: _PairComparer, notes: list[str]) -> float:
    """Return the p-value of a difference: by paired documents if possible, else by the standard errors."""
    if _read_value(row, one) == _read_value(row, other):
        return 1.0
    for line in pairs.compare(row, one, other):
        if (line.task, line.metric, line.pipeline) == (row.task, row.metric, row.pipeline):
            return line.p_value
    first, second = row.cells[one], row.cells[other]
    errors = [cell.stderr for cell in (first, second) if cell is not None and cell.stderr is not None]
    if len(errors) < 2 or not any(errors):
        return 1.0
    notes.append("scores without paired documents are compared by their standard errors")
    distance = abs(_read_value(row, one) - _read_value(row, other)) / math.hypot(*errors)
    return 2 * normal_cdf(-distance)


class _PairComparer:
    """Compares two runs by their paired documents: one task, or all of them for the groups."""

    def __init__(self, sources: Sequence[ScoreTableSource]) -> None:
        self._sources = [_CachedSource(source) for source in sources]
        self._groups: dict[tuple[int, int, str], Sequence[ComparisonRow]] = {}

    def compare(self, row: MatrixRow, one: int, other: int) -> Sequence[ComparisonRow]:
        """Return the differences of the row's task, or of all groups; nothing if the documents cannot be paired."""
        tasks = () if row.group else (row.task,)
        options = CompareOptions(tasks=tasks, metrics=[row.metric], correction="none", level=_LEVEL)
        key = (one, other, row.metric)
        if row.group and key in self._groups:
            return self._groups[key]
        try:
            found = compare_sources(self._sources[one], self._sources[other], options)
        except AssayError:  # another dataset, or a corpus metric
            rows: Sequence[ComparisonRow] = ()
        else:
            rows = found.groups if row.group else found.rows
        if row.group:
            self._groups[key] = rows
        return rows


class _CachedSource:
    """A source that caches the scores it read last."""

    def __init__(self, source: ScoreTableSource) -> None:
        self._source = source
        self._last: tuple[tuple[str, DigestKind | None], ScoreTable] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        if self._last is None or self._last[0] != (task, kind):
            self._last = ((task, kind), self._source.read_score_table(task, kind))
        return self._last[1]
