"""`compare`: sheets to differences, with everything that makes them uncertain, or incomparable, said beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UnknownName, UserMistake
from assay.scoring.metrics import METRICS
from assay.stats.comparison import Difference, compare_pairs
from assay.stats.resampling import CorpusDifference, compare_corpora
from assay.store.sheets import Column, Sheet, SheetSource
from assay.viewer.comparison.clusters import cluster_names, suggested_clusters
from assay.viewer.comparison.mismatches import run_mismatches, task_mismatches
from assay.viewer.comparison.models import speaker_of
from assay.viewer.comparison.pairing import Pairing, numbers_in, pair
from assay.viewer.comparison.records import CompareOptions, Comparison, Flip, Mismatch, Row
from assay.viewer.comparison.settling import settled

__all__ = ["compare_sources", "shared_columns"]

Floats = NDArray[np.float64]

_MOST_CATEGORIES = 200


def compare_sources(first: SheetSource, second: SheetSource, options: CompareOptions) -> Comparison:
    """How a second run differs from a first, task by task.

    Raises:
        UserMistake: They have nothing in common.
    """
    rows: list[Row] = []
    categories: list[Row] = []
    mismatches: list[Mismatch] = []
    notes: list[str] = []
    lacking: list[UnknownName] = []
    for task in _shared_tasks(first, second, options):
        one = first.sheet(task)
        other = second.sheet(task, one.kind)
        if other.kind != one.kind:
            one = first.sheet(task, other.kind)
        pairing = pair(one, other)
        mismatches += run_mismatches(speaker_of(first, task), speaker_of(second, task))
        mismatches += task_mismatches(one, other, pairing)
        if not len(pairing.first):
            notes.append(f"{task}: the runs have no document in common")
            continue
        try:
            names, note = cluster_names(first, one, pairing, options.cluster_by)
        except UnknownName as error:
            lacking.append(error)
            names, note = None, f"{error.what}; each stands for itself"
        notes += [note] if note else []
        if names is None and not options.cluster_by and (hint := suggested_clusters(first, task)):
            notes.append(hint)
        if not options.metrics and (hint := _repeats_hint(one, other)):
            notes.append(hint)
        compared = [*_compare_task(one, other, pairing, names, options, notes)]
        rows += compared
        if options.category and compared:
            try:
                categories += _by_category(first, one, other, pairing, names, compared[0], options, notes)
            except UnknownName as error:
                lacking.append(error)
                notes.append(error.what)
    asked = bool(options.cluster_by) + bool(options.category)
    if lacking and len(lacking) == asked * len({row.task for row in rows}):
        raise lacking[0]
    if not rows:
        raise UserMistake("the runs have no task, metric and document in common", hint="; ".join(notes))
    comparison = Comparison(
        first=first.name,
        second=second.name,
        first_model=first.model,
        second_model=second.model,
        level=options.level,
        correction=options.correction,
        rows=tuple(rows),
        categories=tuple(categories),
        mismatches=_together(mismatches),
        notes=tuple(dict.fromkeys(notes)),
    )
    return settled([comparison])[0]


def _shared_tasks(first: SheetSource, second: SheetSource, options: CompareOptions) -> list[str]:
    shared = [task for task in first.tasks if task in second.tasks]
    for task in options.tasks:
        if task not in shared:
            raise UnknownName(
                f"not both runs have the task `{task}`", hint=f"both have: {', '.join(shared) or 'none'}"
            )
    if not shared and len(first.tasks) == len(second.tasks) == 1:
        raise UserMistake(
            f"the runs have different tasks: `{first.tasks[0]}` and `{second.tasks[0]}`",
            hint="only what was asked of both can be compared",
        )
    return list(options.tasks) or shared


def _compare_task(
    first: Sheet,
    second: Sheet,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
    notes: list[str],
) -> Iterator[Row]:
    shared = shared_columns(first, second)
    wanted = [both for both in shared if both[0].metric in options.metrics] if options.metrics else shared[:1]
    if not wanted:
        lacking = ", ".join(options.metrics) or "a metric in common"
        notes.append(f"{first.task}: not both runs have {lacking}")
    for column, other in wanted:
        row = _compare_column(first, second, (column, other), pairing, clusters, options)
        if row is None:
            notes.append(
                f"{first.task}: {column.metric} is summed up by code of the task's own, and cannot be compared"
            )
        else:
            yield row


def _compare_column(
    first: Sheet,
    second: Sheet,
    columns: tuple[Column, Column],
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
) -> Row | None:
    column, other = columns
    before, after = numbers_in(column), numbers_in(other)
    if before is None or after is None or aggregation_of(column) not in _MEANS:
        return _compare_corpus(first, column, other, pairing, clusters, options)
    left, right = before[pairing.first], after[pairing.second]
    kept = ~(np.isnan(left) | np.isnan(right))
    if not kept.any():
        return None
    chosen = None if clusters is None else [name for name, keep in zip(clusters, kept, strict=True) if keep]
    row = _row(first.task, column, left[kept], right[kept], chosen, options)
    lost = int((~kept).sum())
    said = [_left_out(lost, len(kept))] if lost else []
    if row.clusters == 1:
        said.append("all documents are of one cluster, so nobody can tell what others would give")
    if not _is_mean(column, before) or not _is_mean(other, after):
        said.append("the reported numbers are not the means of the documents' scores; the means are compared")
    flips: tuple[Flip, ...] = ()
    if options.flips:
        flips = tuple(_flips(first, second, pairing, left, right, kept))
    return replace(row, flips=flips, notes=tuple(said))


def _repeats_hint(first: Sheet, second: Sheet) -> str:
    """A word where each document was answered several times: all answers say more than the one that is reported."""
    shared = shared_columns(first, second)
    main = shared[0][0] if shared else None
    name = f"{main.metric}.mean" if main else ""
    if main is None or all(column.metric != name for column, _ in shared):
        return ""
    return f"{first.task}: documents were answered several times; `--metric {name}` compares all answers, not only the reported one"


def shared_columns(first: Sheet, second: Sheet) -> list[tuple[Column, Column]]:
    """Columns of the same metric and filter pipeline; of the same metric alone where files do not name pipelines."""
    shared = [(first.columns[key], second.columns[key]) for key in first.columns if key in second.columns]
    if shared:
        return shared
    others: dict[str, Column] = {}
    for column in second.columns.values():
        others.setdefault(column.metric, column)
    found: dict[str, tuple[Column, Column]] = {}
    for column in first.columns.values():
        if column.metric in others:
            found.setdefault(column.metric, (column, others[column.metric]))
    return list(found.values())


_MEANS = frozenset({"mean", "nanmean"})


def aggregation_of(column: Column) -> str:
    """The name of a column's aggregation; where nobody says, that of the metric it is called after."""
    if column.aggregation or column.metric not in METRICS:
        return column.aggregation or "mean"
    return METRICS.get(column.metric).aggregation


def higher_is_better(column: Column) -> bool:
    """Whether more of a metric is better; where nobody says, as of the metric it is called after."""
    if column.higher_is_better is None and column.metric in METRICS:
        return METRICS.get(column.metric).higher_is_better
    return column.higher_is_better is not False


def _is_mean(column: Column, numbers: Floats) -> bool:
    """Whether the reported number is what is compared here; nobody can tell without one."""
    if column.reported is None:
        return True
    middle = float(np.nanmean(numbers))
    return math.isclose(middle, column.reported, rel_tol=1e-6, abs_tol=1e-9)


def _flips(
    first: Sheet, second: Sheet, pairing: Pairing, left: Floats, right: Floats, kept: NDArray[np.bool_]
) -> Iterator[Flip]:
    for at in np.flatnonzero(kept & (left != right)).tolist():
        yield Flip(
            document=first.documents[pairing.first[at]],
            other=second.documents[pairing.second[at]],
            first=float(left[at]),
            second=float(right[at]),
        )


def _row(
    task: str,
    column: Column,
    before: Floats,
    after: Floats,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
    category: str = "",
) -> Row:
    found = compare_pairs(before, after, clusters, level=options.level)
    up, down = (found.wins, found.losses) if higher_is_better(column) else (found.losses, found.wins)
    share = min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1
    row = _filled(task, column, found, test=found.test, documents=found.documents, clusters=found.clusters)
    return replace(
        row,
        category=category,
        degrees=found.degrees,
        wins=up,
        ties=found.ties,
        losses=down,
        share=bool(share),
    )


def _filled(
    task: str,
    column: Column,
    found: Difference | CorpusDifference,
    *,
    test: str,
    documents: int,
    clusters: int | None,
) -> Row:
    """What the differences of means and those of corpus metrics say alike; whether it differs is settled at the end."""
    return Row(
        task=task,
        metric=column.metric,
        pipeline=column.pipeline,
        first=found.first,
        second=found.second,
        difference=found.value,
        stderr=found.stderr,
        low=found.interval.low,
        high=found.interval.high,
        interval_method=found.interval.method,
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test=test,
        differs=False,
        better=None,
        detectable=None,
        documents=documents,
        clusters=clusters,
        higher_is_better=higher_is_better(column),
    )


def _compare_corpus(
    sheet: Sheet,
    column: Column,
    other: Column,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
) -> Row | None:
    """A metric that only a set of documents has: F1, BLEU, perplexity."""
    rows = [
        (column.values[one], other.values[two])
        for one, two in zip(pairing.first.tolist(), pairing.second.tolist(), strict=True)
    ]
    kept = [at for at, both in enumerate(rows) if both[0] is not None and both[1] is not None]
    aggregation = aggregation_of(column)
    if not kept:
        return None
    names = None if clusters is None else [clusters[at] for at in kept]
    try:
        found = compare_corpora(
            aggregation,
            [rows[at][0] for at in kept],
            [rows[at][1] for at in kept],
            names,
            level=options.level,
        )
    except (TypeError, ValueError):  # values of a shape the named aggregation does not take
        return None
    if found is None:
        return None
    test = "swapped answers" if found.clusters is None else "swapped answers, whole clusters"
    row = _filled(sheet.task, column, found, test=test, documents=len(kept), clusters=found.clusters)
    lost = len(rows) - len(kept)
    said = (_left_out(lost, len(rows)),) if lost else ()
    return replace(row, share=aggregation in ("f1", "acc_all"), notes=said)


def _left_out(lost: int, total: int) -> str:
    return f"{lost} of {total} documents have no score in one of the runs and are left out"


def _by_category(
    source: SheetSource,
    first: Sheet,
    second: Sheet,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    whole: Row,
    options: CompareOptions,
    notes: list[str],
) -> list[Row]:
    """The main metric within each value of a field, the largest first."""
    values = source.field(first.task, options.category)
    if all(value is None for value in values):
        known = ", ".join(source.field_names(first.task)) or "none"
        raise UnknownName(
            f"the documents of `{first.task}` have no field `{options.category}`", hint=f"they have: {known}"
        )
    labels = np.array([str(values[row]) for row in pairing.first.tolist()])
    column, other = next(
        both
        for both in shared_columns(first, second)
        if (both[0].pipeline, both[0].metric) == (whole.pipeline, whole.metric)
    )
    before, after = numbers_in(column), numbers_in(other)
    if before is None or after is None:
        notes.append(
            f"{first.task}: {whole.metric} has no scores of single documents, so no categories either"
        )
        return []
    left, right = before[pairing.first], after[pairing.second]
    kept = ~(np.isnan(left) | np.isnan(right))
    names, counts = np.unique(labels[kept], return_counts=True)
    if len(names) > _MOST_CATEGORIES:
        notes.append(
            f"{first.task}: `{options.category}` has {len(names)} values; the largest {_MOST_CATEGORIES} are shown"
        )
    rows = []
    for name in names[np.argsort(-counts, kind="stable")][:_MOST_CATEGORIES]:
        chosen = kept & (labels == name)
        own = None if clusters is None else [clusters[at] for at in np.flatnonzero(chosen).tolist()]
        rows.append(_row(first.task, column, left[chosen], right[chosen], own, options, str(name)))
    return rows


def _together(mismatches: Sequence[Mismatch]) -> tuple[Mismatch, ...]:
    """The same mismatch of many tasks as one."""
    found: dict[tuple[str, str], list[Mismatch]] = {}
    for one in mismatches:
        found.setdefault((one.kind, one.what), []).append(one)
    merged = []
    for several in found.values():
        tasks = [one.task for one in several if one.task]
        named = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
        merged.append(replace(several[0], task=named))
    return tuple(merged)
