"""Plots of two runs: the scores of each task, and of each document that both have, against each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from assay.core.errors import UnknownName
from assay.core.records.verdicts import Estimate
from assay.store.documents.score_tables import ScoreColumn, ScoreTableSource
from assay.viewer.charts.agreement import (
    PairCount,
    TaskPair,
    build_document_scatter_figure,
    build_task_scatter_figure,
)
from assay.viewer.comparison.pairing import pair_documents, scores_from_column
from assay.viewer.comparison.run_comparison import is_higher_better, match_columns
from assay.viewer.plots.document_plots import MAX_POINTS, sample_positions
from assay.viewer.plots.records import Plot, PlotTable
from assay.viewer.results.run_overview import is_share

__all__ = ["build_document_scatter", "build_task_scatter", "list_common_tasks"]

_MAX_NAME_LENGTH = 34
_MAX_PAIRS = 36
"""More different pairs of scores are drawn as points."""


def list_common_tasks(first: ScoreTableSource, second: ScoreTableSource) -> list[str]:
    """Return the tasks that both runs have, in the order of the first."""
    return [task for task in first.tasks if task in second.tasks]


def build_task_scatter(first: ScoreTableSource, second: ScoreTableSource) -> Plot:
    """Build a point for each task and group that both runs have: its first metric in both, with intervals.

    Scores between 0 and 1 share the axes; other metrics are listed in the note.
    """
    name, title = "task_scatter", "Scores of tasks"
    before, after = _find_first_estimates(first), _find_first_estimates(second)
    every = [(one, after[key]) for key, one in before.items() if key in after]
    pairs = [(one, other) for one, other in every if is_share(one) and is_share(other)]
    share = bool(pairs)
    others = sorted({one.task for one, _ in every} - {one.task for one, _ in pairs})
    if not pairs and len({one.metric for one, _ in every}) == 1:
        pairs, others = every, []
    if not pairs:
        return Plot(
            name=name,
            title=title,
            missing="The runs have no task with a common score between 0 and 1."
            if every
            else "The runs have no task in common.",
        )
    listed = [_build_task_pair(one, other) for one, other in pairs]
    signs = [
        (one.second > one.first) - (one.second < one.first)
        if one.higher_is_better
        else (one.second < one.first) - (one.second > one.first)
        for one in listed
    ]
    x_title, y_title = _name_runs(first, second)
    return Plot(
        name=name,
        title=title,
        summary=(
            f"{y_title} is better on {signs.count(1)} of {len(listed)} tasks and worse on {signs.count(-1)},"
            f" compared with {x_title}. The comparison says which differences are significant."
        ),
        note=f"Not shown, because of other scales: {', '.join(others[:8])}{' …' if len(others) > 8 else ''}."
        if others
        else "",
        table=PlotTable(
            columns=("task", "metric", "first", "first low", "first high", "second", "second low", "second high"),
            rows=tuple(
                (
                    one.name, one.metric, one.first, one.first_low, one.first_high, one.second, one.second_low,
                    one.second_high,
                )
                for one in listed
            ),
        ),
        build=partial(build_task_scatter_figure, listed, first=x_title, second=y_title, share=share),
    )  # fmt: skip


def _find_first_estimates(source: ScoreTableSource) -> dict[tuple[str, str, str], Estimate]:
    """Return the first numeric estimate of each task, by task, pipeline and metric."""
    found: dict[str, Estimate] = {}
    for one in source.read_estimates():
        if isinstance(one.value, (int, float)) and not isinstance(one.value, bool):
            found.setdefault(one.task, one)
    return {(one.task, one.pipeline, one.metric): one for one in found.values()}


def _build_task_pair(first: Estimate, second: Estimate) -> TaskPair:
    (low, high), (other_low, other_high) = (one.interval or (None, None) for one in (first, second))
    return TaskPair(
        name=first.task,
        metric=first.metric,
        first=float(first.value),
        second=float(second.value),
        first_low=low,
        first_high=high,
        second_low=other_low,
        second_high=other_high,
        higher_is_better=first.higher_is_better is not False,
    )


def build_document_scatter(
    first: ScoreTableSource,
    second: ScoreTableSource,
    task: str,
    *,
    metric: str = "",
    max_points: int = MAX_POINTS,
) -> Plot:
    """Build the scores of the documents that both runs have. Few different pairs of scores are bubbles, many are points.

    `metric`: by default the first one that both runs have.

    Raises:
        UnknownName: One of the runs does not have the task.
    """
    name, title = "scatter", f"Scores of the documents of {task}"
    if task not in list_common_tasks(first, second):
        raise UnknownName(
            f"the task `{task}` is not in both runs",
            hint=f"both have: {', '.join(list_common_tasks(first, second)) or 'none'}",
        )
    one = first.read_score_table(task)
    other = second.read_score_table(task, one.kind)
    if other.kind != one.kind:
        one = first.read_score_table(task, other.kind)
    columns = _choose_columns(match_columns(one, other), metric)
    if columns is None:
        return Plot(
            name=name,
            title=title,
            missing="The runs have no metric with a score for each document in common.",
        )
    pairing = pair_documents(one, other)
    left, right = (scores_from_column(column) for column in columns)
    assert left is not None and right is not None
    before, after = left[pairing.first], right[pairing.second]
    kept = ~(np.isnan(before) | np.isnan(after))
    if not kept.any():
        return Plot(name=name, title=title, missing="The runs have no scored document in common.")
    numbers = np.asarray(one.documents, dtype=np.int64)[pairing.first][kept]
    before, after = before[kept], after[kept]
    upward = is_higher_better(columns[0])
    counts, shown = _count_pairs(numbers, before, after, max_points)
    share = bool(min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1)
    better = int((after > before).sum() if upward else (after < before).sum())
    worse = int((after != before).sum()) - better
    x_title, y_title = _name_runs(first, second)
    metric = columns[0].metric
    return Plot(
        name=name,
        title=title,
        summary=(
            f"{len(before):,} documents: {metric} of {y_title} is better on {better:,}, worse on {worse:,} and"
            f" equal on {len(before) - better - worse:,}; mean {before.mean():.4f} and {after.mean():.4f}."
        ),
        note=(
            f"The points are a random sample of {shown:,} documents; the numbers in the text use all."
            if shown < len(before)
            else ""
        ),
        table=PlotTable(
            columns=("first", "second", "documents", "example document"),
            rows=tuple((pair.first, pair.second, pair.documents, pair.example) for pair in counts),
        ),
        build=partial(
            build_document_scatter_figure,
            counts,
            first=x_title,
            second=y_title,
            metric=metric,
            higher_is_better=upward,
            share=share,
        ),
    )


def _choose_columns(
    shared: Sequence[tuple[ScoreColumn, ScoreColumn]], metric: str
) -> tuple[ScoreColumn, ScoreColumn] | None:
    """Return the first pair of columns with numbers."""
    for column, other in shared:
        if metric in ("", column.metric) and not (
            scores_from_column(column) is None or scores_from_column(other) is None
        ):
            return column, other
    return None


def _count_pairs(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    before: np.ndarray[tuple[int], np.dtype[np.float64]],
    after: np.ndarray[tuple[int], np.dtype[np.float64]],
    max_points: int,
) -> tuple[list[PairCount], int]:
    """Return the different pairs of scores with their numbers of documents, or a sample of documents; and how many."""
    pairs, places, counts = np.unique(
        np.stack((before, after)), axis=1, return_index=True, return_counts=True
    )
    if pairs.shape[1] <= _MAX_PAIRS:
        found = [
            PairCount(first=one, second=other, documents=count, example=number)
            for one, other, count, number in zip(
                pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), numbers[places].tolist(), strict=True
            )
        ]
        return found, len(before)
    chosen = sample_positions(len(before), max_points)
    found = [
        PairCount(first=one, second=other, documents=1, example=number)
        for one, other, number in zip(
            before[chosen].tolist(), after[chosen].tolist(), numbers[chosen].tolist(), strict=True
        )
    ]
    return found, len(chosen)


def _name_runs(first: ScoreTableSource, second: ScoreTableSource) -> tuple[str, str]:
    """Return the models; the names of the runs if the models are the same."""
    if first.model != second.model:
        return _shorten(first.model), _shorten(second.model)
    return _shorten(first.name), _shorten(second.name)


def _shorten(name: str) -> str:
    half = (_MAX_NAME_LENGTH - 1) // 2
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:half]}…{name[-half:]}"
