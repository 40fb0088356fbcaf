"""The numbers of several runs as one table, and which of them are the best beyond chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import AssayError, UnknownName
from assay.core.verdicts import Estimate
from assay.stats.distributions import normal_cdf
from assay.store.run_sheets import RunSheets
from assay.store.sheets import Kind, Sheet, SheetSource
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.records import CompareOptions
from assay.viewer.run_facts import is_share
from assay.viewer.tables import rows_of

__all__ = ["Cell", "Column", "Matrix", "Row", "make_matrix"]

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run's number."""

    value: float
    stderr: float | None = None
    interval: tuple[float, float] | None = None
    scored: int = 0
    best: bool = False
    """Better than every other run's, beyond chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run."""

    label: str
    """Its model, where that tells the runs apart; else its id."""

    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of a task or group."""

    task: str
    label: str
    metric: str
    pipeline: str
    cells: tuple[Cell | None, ...]
    depth: int = 0
    group: bool = False
    higher_is_better: bool | None = None
    share: bool = True

    @property
    def measure(self) -> str:
        """The metric, with its filter where that has a name."""
        return self.metric if self.pipeline in ("", "none") else f"{self.metric} ({self.pipeline})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Rows of tasks, columns of runs."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def make_matrix(
    sources: Sequence[SheetSource],
    *,
    tasks: Sequence[str] = (),
    metrics: Sequence[str] = (),
    every: bool = False,
    best: bool = True,
    labels: Sequence[str] = (),
) -> Matrix:
    """Put the numbers of some runs into a table.

    By default the first metric of each task and group; `metrics` names others, `every` takes all. `best` finds out which
    numbers are better than all others beyond chance: document by document where runs can be paired. `labels` are what the
    runs are called, where their models do not say it.

    Raises:
        UnknownName: No run has such a task or metric.
    """
    columns = _columns(sources)
    if labels:
        columns = tuple(replace(column, label=label) for column, label in zip(columns, labels, strict=True))
    numbers = [
        {(one.task, one.metric, one.pipeline): one for one in source.numbers() if _is_number(one.value)}
        for source in sources
    ]
    rows = []
    for depth, task, label, group, key in _keys(sources, numbers, every=every or bool(metrics)):
        if (tasks and task not in tasks) or (metrics and key[1] not in metrics):
            continue
        found = [known.get(key) for known in numbers]
        known = [one for one in found if one is not None]
        rows.append(
            Row(
                task=task,
                label=label,
                metric=key[1],
                pipeline=key[2],
                cells=tuple(None if one is None else _cell(one) for one in found),
                depth=depth,
                group=group,
                higher_is_better=known[0].higher_is_better,
                share=all(is_share(one) for one in known),
            )
        )
    _check(rows, sources, tasks, metrics)
    notes: list[str] = []
    if best and len(sources) > 1:
        rows = _with_best(rows, sources, notes)
    return Matrix(columns=columns, rows=tuple(rows), notes=tuple(dict.fromkeys(notes)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(estimate: Estimate) -> Cell:
    return Cell(
        value=float(estimate.value),
        stderr=estimate.stderr,
        interval=estimate.interval,
        scored=estimate.scored,
    )


def _columns(sources: Sequence[SheetSource]) -> tuple[Column, ...]:
    models = [source.model for source in sources]
    telling = len(set(models)) == len(models) and all(models)
    names = [source.name for source in sources]
    labels = list(models) if telling else list(names)
    for at, label in enumerate(labels):  # one run given twice
        if labels.index(label) != at:
            labels[at] = f"{label} [{at + 1}]"
    return tuple(
        Column(label=label, name=source.name, model=source.model)
        for label, source in zip(labels, sources, strict=True)
    )


Key = tuple[str, str, str]


def _keys(
    sources: Sequence[SheetSource], numbers: Sequence[dict[Key, Estimate]], *, every: bool
) -> Iterator[tuple[int, str, str, bool, Key]]:
    """(depth, task, label, group, key) of every row, in the first run's order; what only others have comes after."""
    seen: set[Key] = set()
    tasks: set[str] = set()
    for source, known in zip(sources, numbers, strict=True):
        for depth, task, label, group, estimate in _lines(source, known):
            key = (estimate.task, estimate.metric, estimate.pipeline)
            if key in seen or (task in tasks and not every):
                continue
            seen.add(key)
            tasks.add(task)
            yield depth, task, label, group, key


def _lines(source: SheetSource, known: dict[Key, Estimate]) -> Iterator[tuple[int, str, str, bool, Estimate]]:
    if isinstance(source, RunSheets):
        run = source.run
        for depth, name, facts, estimate in rows_of(run):
            if estimate is not None and (name, estimate.metric, estimate.pipeline) in known:
                yield depth, name, str(facts.get("alias") or name), name in run.groups, estimate
        return
    for estimate in known.values():
        yield 0, estimate.task, estimate.task, estimate.task not in source.tasks, estimate


def _check(
    rows: Sequence[Row], sources: Sequence[SheetSource], tasks: Sequence[str], metrics: Sequence[str]
) -> None:
    numbers = [one for source in sources for one in source.numbers()]
    known = list(dict.fromkeys(one.task for one in numbers))
    for task in tasks:
        if task not in known:
            raise UnknownName(f"no run has a number of `{task}`", hint=f"they have: {', '.join(known)}")
    measures = list(dict.fromkeys(one.metric for one in numbers))
    for metric in metrics:
        if metric not in measures:
            raise UnknownName(f"no run has the metric `{metric}`", hint=f"they have: {', '.join(measures)}")
    if not rows:
        raise UnknownName("the runs have no numbers to show", hint="are they finished? `assay runs` says so")


def _with_best(rows: list[Row], sources: Sequence[SheetSource], notes: list[str]) -> list[Row]:
    """The rows with the numbers marked that are better than all others beyond chance."""
    kept = [_Kept(source) for source in sources]
    marked = []
    for row in rows:
        there = [at for at, cell in enumerate(row.cells) if cell is not None]
        if len(there) < 2 or row.higher_is_better is None:
            marked.append(row)
            continue
        sign = 1 if row.higher_is_better else -1
        leader = max(there, key=lambda at: sign * _value(row, at))
        others = [at for at in there if at != leader]
        allowed = (1 - _LEVEL) / len(others)  # Bonferroni: the leader must beat every one of them
        if all(_p_value(row, leader, other, kept, notes) < allowed for other in others):
            cells = tuple(
                replace(cell, best=True) if cell is not None and at == leader else cell
                for at, cell in enumerate(row.cells)
            )
            row = replace(row, cells=cells)
        marked.append(row)
    return marked


def _value(row: Row, at: int) -> float:
    cell = row.cells[at]
    return math.nan if cell is None else cell.value


def _p_value(row: Row, one: int, other: int, sources: Sequence[_Kept], notes: list[str]) -> float:
    """How likely such a difference is by chance: paired where documents can be, else by the standard errors."""
    if _value(row, one) == _value(row, other):
        return 1.0
    if not row.group:
        options = CompareOptions(tasks=[row.task], metrics=[row.metric], correction="none", level=_LEVEL)
        try:
            found = compare_sources(sources[one], sources[other], options)
        except AssayError:  # another dataset, or a metric that single documents do not have
            found = None
        for line in () if found is None else found.rows:
            if line.pipeline == row.pipeline:
                return line.p_value
    first, second = row.cells[one], row.cells[other]
    errors = [cell.stderr for cell in (first, second) if cell is not None and cell.stderr is not None]
    if len(errors) < 2 or not any(errors):
        return 1.0
    notes.append("where documents could not be paired, the standard errors decide")
    distance = abs(_value(row, one) - _value(row, other)) / math.hypot(*errors)
    return 2 * normal_cdf(-distance)


class _Kept:
    """A source whose sheets are read once, however often they are compared."""

    def __init__(self, source: SheetSource) -> None:
        self._source = source
        self._last: tuple[tuple[str, Kind | None], Sheet] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def sheet(self, task: str, kind: Kind | None = None) -> Sheet:
        if self._last is None or self._last[0] != (task, kind):
            self._last = ((task, kind), self._source.sheet(task, kind))
        return self._last[1]
