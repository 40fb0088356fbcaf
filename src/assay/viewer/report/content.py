"""The content of a report in reading order: records that the template only has to render."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import InvalidOption, UnknownName
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.runs.run import Run
from assay.viewer.charts import (
    Figure,
    ScoreMark,
    Theme,
    build_categories_figure,
    build_histogram_figure,
    build_outcomes_figure,
    build_scores_figure,
    build_themed_figures,
    build_throughput_figure,
    group_by_scale,
)
from assay.viewer.documents.statistics import DocumentStatistics, collect_document_statistics
from assay.viewer.matrix import Matrix, build_matrix
from assay.viewer.report.comparison_section import build_comparison_sections
from assay.viewer.report.documents import DocumentView, build_document_views
from assay.viewer.report.plots_section import (
    PlotGroup,
    build_comparison_plot_groups,
    build_run_plot_groups,
)
from assay.viewer.report.tables import (
    build_matrix_table,
    build_score_rows,
    build_settings_table,
    build_summary_tiles,
    build_task_rows,
    build_usage_rows,
)
from assay.viewer.results.run_overview import (
    RunOverview,
    build_outcome_bars,
    build_run_overview,
    build_score_marks,
)

__all__ = ["Report", "ReportOptions", "build_report"]

_MAX_ROWS = 60
"""The number of rows in one chart; the table has all of them."""

_MIN_DURATION_S = 3.0
"""Shorter runs get no throughput chart."""

_MAX_CHARTS = 12
"""The number of category charts, and of histograms."""


_MAX_STATED_SCORES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What a report contains."""

    documents: int = 12
    """The number of sample documents; 0: none."""

    seed: int = 0
    """The seed of the document sample."""

    title: str = ""
    category: str = ""
    """The field to group scores by; empty: one that looks like a category."""

    labels: tuple[str, ...] = ()
    """The names of the runs; by default their models."""

    def __post_init__(self) -> None:
        if not 0 <= self.documents <= 500:
            raise InvalidOption(
                f"cannot show {self.documents} documents",
                where="--documents",
                hint="use a number from 0 to 500",
            )


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything the template renders."""

    title: str
    subtitle: str
    version: str
    footer: str
    tiles: list[dict[str, str]]
    conclusions: list[str] = field(default_factory=list)
    """What the report shows, in a sentence per comparison, or one about the scores of a single run."""

    scores_intro: str
    score_charts: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    matrix: dict[str, Any] | None = None
    score_notes: list[tuple[str, str]] = field(default_factory=list)
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    categories: list[dict[str, str]] = field(default_factory=list)
    histograms: list[dict[str, str]] = field(default_factory=list)
    throughput_charts: list[dict[str, str]] = field(default_factory=list)
    usage: list[dict[str, Any]] = field(default_factory=list)
    documents: list[DocumentView] = field(default_factory=list)
    documents_intro: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)
    plots: list[PlotGroup] = field(default_factory=list)

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Figure -> the numbers to download, for figures of plots."""
        return {
            name: {"columns": plot.table.columns, "rows": plot.table.rows}
            for group in self.plots
            for name, plot in group.plots
        }

    @property
    def sections(self) -> list[tuple[str, str]]:
        """(anchor, title) of the sections that have content, in order."""
        there = (
            ("scores", "Scores", True),
            ("comparison", "Comparison", bool(self.comparisons)),
            ("outcomes", "Outcomes", True),
            ("details", "Score details", bool(self.categories or self.histograms)),
            ("plots", "Plots", bool(self.plots)),
            ("speed", "Time and cost", bool(self.throughput_charts or self.usage)),
            ("documents", "Documents", bool(self.documents)),
            ("settings", "Settings", True),
        )
        return [(name, title) for name, title, shown in there if shown]

    def add_figure(self, name: str, make: Callable[[Theme], Figure]) -> str:
        """Build a figure for both themes, store it and return its name."""
        self.figures[name] = build_themed_figures(make)
        return name


def build_report(runs: Sequence[Run], options: ReportOptions, *, version: str = "") -> Report:
    """Build the report of one run, or of several side by side."""
    facts = [build_run_overview(run) for run in runs]
    tables = [RunScoreTables(run) for run in runs]
    matrix = (
        build_matrix(tables, best=len(runs) > 1, labels=options.labels)
        if any(one.scores for one in facts) and _has_numbers(facts)
        else None
    )
    labels = list(options.labels) or [one.model for one in facts]
    if matrix:
        labels = [column.label for column in matrix.columns]
    statistics = _collect_statistics(runs, facts, options)
    _check_category(statistics, tables[0], options)
    report = _start_report(facts, labels, options, version)
    _add_scores(report, facts, labels, matrix)
    if len(runs) > 1:
        report.comparisons = build_comparison_sections(report.add_figure, tables, labels)
        report.conclusions = [part["conclusion"] for part in report.comparisons if part["conclusion"]]
    else:
        report.conclusions = _state_scores(facts[0])
    _add_outcomes(report, facts, labels)
    _add_details(report, statistics, labels)
    _add_throughput(report, facts, labels)
    report.plots = (
        build_comparison_plot_groups(report.add_figure, runs, tables, labels)
        if len(runs) > 1
        else build_run_plot_groups(report.add_figure, runs[0])
    )
    report.documents = build_document_views(runs, labels, statistics, options.documents)
    report.documents_intro = _describe_documents(report, facts, options)
    report.settings = build_settings_table(facts, labels)
    report.tasks = build_task_rows(facts)
    return report


def _state_scores(facts: RunOverview) -> list[str]:
    """Return a sentence with the first score of each task or group at the top level; none without scores."""
    rows = [row for row in facts.scores if row.depth == 0 and row.is_first and row.value is not None]
    parts = []
    for row in rows[:_MAX_STATED_SCORES]:
        estimate = row.estimate
        interval = ""
        if estimate is not None and estimate.interval is not None:
            interval = f" (95 % interval {estimate.interval[0]:.3f} to {estimate.interval[1]:.3f})"
        metric = "" if estimate is None else f"{estimate.metric} "
        parts.append(f"{metric}{row.text}{interval} on {row.label}")
    if not parts:
        return []
    more = f" and {len(rows) - len(parts)} further scores" if len(rows) > len(parts) else ""
    return [f"{facts.model} reaches {'; '.join(parts)}{more}"]


def _has_numbers(facts: Sequence[RunOverview]) -> bool:
    return any(row.value is not None for one in facts for row in one.scores)


_Statistics = dict[str, list[DocumentStatistics | None]]


def _collect_statistics(
    runs: Sequence[Run], facts: Sequence[RunOverview], options: ReportOptions
) -> _Statistics:
    """Collect the statistics of each task of each run in one pass over its documents."""
    tasks = list(dict.fromkeys(task.name for one in facts for task in one.tasks))
    return {
        task: [
            collect_document_statistics(
                run,
                task,
                field=options.category or None,
                sample=options.documents,
                seed=options.seed,
            )
            if task in run.tasks
            else None
            for run in runs
        ]
        for task in tasks
    }


def _check_category(statistics: _Statistics, first: RunScoreTables, options: ReportOptions) -> None:
    found = any(one is not None and one.field for sides in statistics.values() for one in sides)
    if options.category and not found:
        known = list(dict.fromkeys(name for task in first.tasks for name in first.field_names(task)))
        raise UnknownName(
            f"no scored document has the field `{options.category}`",
            where="--by",
            hint=f"they have: {', '.join(known)}",
        )


def _start_report(
    facts: Sequence[RunOverview], labels: Sequence[str], options: ReportOptions, version: str
) -> Report:
    if len(facts) == 1:
        title = options.title or facts[0].model
        subtitle = f"{facts[0].id} · {_format_start(facts[0])}{'' if facts[0].finished else ' · unfinished'}"
    else:
        title = options.title or " · ".join(labels)
        subtitle = f"{len(facts)} runs: {', '.join(one.id for one in facts)}"
    intro = (
        "The dot is the score, the bar its 95 % confidence interval: the range of scores to expect on other documents of"
        " the same kind."
    )
    if len(facts) > 1:
        intro += " Bold in the table: significantly better than every other run."
    created = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    return Report(
        title=title,
        subtitle=subtitle,
        version=version,
        footer=f"Generated on {created} by Assay {version}. This file is self-contained and loads nothing from the network.",
        tiles=build_summary_tiles(facts),
        scores_intro=intro,
    )


def _format_start(facts: RunOverview) -> str:
    if facts.started is None:
        return "not started"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started))


def _add_scores(
    report: Report, facts: Sequence[RunOverview], labels: Sequence[str], matrix: Matrix | None
) -> None:
    several = len(facts) > 1
    marks = [
        mark
        for one, label in zip(facts, labels, strict=True)
        for mark in build_score_marks(one, run=label if several else "", first_only=several)
    ]
    for position, group in enumerate(group_by_scale(marks)):
        names = list(dict.fromkeys((mark.name, mark.metric) for mark in group))
        if not group[0].share and len(names) == 1 and not several:
            continue  # the table shows a single score as well as a chart
        shown = [mark for mark in group if (mark.name, mark.metric) in names[:_MAX_ROWS]]
        make = _bind_figure(build_scores_figure, shown, order=labels if several else ())
        report.score_charts.append(report.add_figure(f"scores-{position}", make))
        if len(names) > _MAX_ROWS:
            report.score_notes.append(("note", f"The chart shows the first {_MAX_ROWS} of {len(names)} rows"))
    if several and matrix is not None:
        report.matrix = build_matrix_table(matrix)
        report.score_notes += [("note", note) for note in matrix.notes]
    elif not several:
        report.rows = build_score_rows(facts[0])
        report.score_notes += [("note", note) for note in facts[0].notes]
    if not _has_numbers(facts):
        report.scores_intro = _explain_missing_scores(facts)


def _explain_missing_scores(facts: Sequence[RunOverview]) -> str:
    if not all(one.finished for one in facts):
        return "No scores yet: the run is not finished."
    return "No scores: no document was scored."


def _bind_figure(figure: Callable[..., Figure], *given: Any, **more: Any) -> Callable[[Theme], Figure]:
    return lambda theme: figure(*given, theme, **more)


def _add_outcomes(report: Report, facts: Sequence[RunOverview], labels: Sequence[str]) -> None:
    several = len(facts) > 1
    for position, (one, label) in enumerate(zip(facts, labels, strict=True)):
        bars = build_outcome_bars(one)[:_MAX_ROWS]
        met = {ending for bar in bars for ending, count in bar.counts.items() if count}
        name, text = "", ""
        if met == {"scored"}:
            text = f"All {one.documents:,} documents were scored."
        else:
            name = report.add_figure(f"outcomes-{position}", _bind_figure(build_outcomes_figure, bars))
        notes = [("note", note) for note in one.notes] if several else []
        report.outcomes.append(
            {"title": label if several else "", "chart": name, "text": text, "notes": notes}
        )


def _add_details(
    report: Report, statistics: Mapping[str, Sequence[DocumentStatistics | None]], labels: Sequence[str]
) -> None:
    for task, sides in statistics.items():
        there = [(label, found) for label, found in zip(labels, sides, strict=True) if found is not None]
        with_categories = [(label, found) for label, found in there if found.categories]
        if with_categories and len(report.categories) < _MAX_CHARTS:
            first = with_categories[0][1]
            name = report.add_figure(f"categories-{task}", _build_categories_chart(with_categories, labels))
            caption = f"{first.metric} by {first.field}, 95 % intervals"
            report.categories.append({"title": task, "chart": name, "caption": caption})
        for label, found in there:
            graded = len(found.histogram) > 2 or any(bar.low not in (0.0, 1.0) for bar in found.histogram)
            if graded and len(report.histograms) < _MAX_CHARTS:
                make = _bind_figure(build_histogram_figure, found.histogram, metric=found.metric)
                name = report.add_figure(f"spread-{task}-{labels.index(label)}", make)
                title = f"{task} · {label}" if len(labels) > 1 else task
                report.histograms.append(
                    {"title": title, "chart": name, "caption": f"documents by {found.metric}"}
                )


def _build_categories_chart(
    with_categories: Sequence[tuple[str, DocumentStatistics]], labels: Sequence[str]
) -> Callable[[Theme], Figure]:
    """Return bars for one run; for several, a row for each category with a mark for each run."""
    first = with_categories[0][1]
    shown = [mark.name for mark in first.categories[:_MAX_ROWS]]
    if len(labels) == 1:
        return _bind_figure(
            build_categories_figure, first.categories[:_MAX_ROWS], metric=first.metric, share=first.share
        )
    marks = [
        ScoreMark(
            name=name,
            metric=first.metric,
            value=mark.value,
            low=mark.low,
            high=mark.high,
            run=label,
            share=all(found.share for _, found in with_categories),
            note=f"{mark.documents} documents",
        )
        for label, found in with_categories
        for name in shown
        for mark in found.categories
        if mark.name == name
    ]
    return _bind_figure(build_scores_figure, marks, order=labels)


def _add_throughput(report: Report, facts: Sequence[RunOverview], labels: Sequence[str]) -> None:
    several = len(facts) > 1
    for position, (one, label) in enumerate(zip(facts, labels, strict=True)):
        if (
            one.throughput is not None
            and one.throughput.step_s * len(one.throughput.model) >= _MIN_DURATION_S
        ):
            name = report.add_figure(
                f"pace-{position}", _bind_figure(build_throughput_figure, one.throughput)
            )
            report.throughput_charts.append({"title": label if several else "", "chart": name})
    report.usage = build_usage_rows(facts, labels)


def _describe_documents(report: Report, facts: Sequence[RunOverview], options: ReportOptions) -> str:
    documents_by_task: dict[str, int] = {}
    for task in (task for one in facts for task in one.tasks):
        documents_by_task[task.name] = max(task.documents, documents_by_task.get(task.name, 0))
    whole = sum(documents_by_task.values())
    out_of = f" of {whole:,}" if whole > len(report.documents) else ""
    return (
        f"{len(report.documents)}{out_of}, sampled at random (seed {options.seed}) from each kind: wrong, unscored,"
        " right. The kinds are not sampled in proportion to their frequency."
    )
