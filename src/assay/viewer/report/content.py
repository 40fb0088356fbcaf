"""What a report says, in the order it says it: records that the page only has to write down."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import BadOption, UnknownName
from assay.store.run_sheets import RunSheets
from assay.store.runs import Run
from assay.viewer.charts import (
    Figure,
    ScoreMark,
    Theme,
    categories_figure,
    histogram_figure,
    on_one_scale,
    outcomes_figure,
    scores_figure,
    themed,
    throughput_figure,
)
from assay.viewer.document_facts import DocumentFacts, document_facts
from assay.viewer.matrix import Matrix, make_matrix
from assay.viewer.report.comparing import comparison_parts
from assay.viewer.report.documents import DocumentView, document_views
from assay.viewer.report.parts import (
    matrix_part,
    score_lines,
    settings_part,
    spending_rows,
    summary_tiles,
    task_rows,
)
from assay.viewer.run_facts import RunFacts, outcome_bars, run_facts, score_marks

__all__ = ["Report", "ReportOptions", "make_report"]

_MOST_ROWS = 60
"""Marks in one chart of scores; beyond that the table serves better."""

_SHORTEST_S = 3.0
"""Shorter runs have no pace worth a chart."""

_MOST_CHARTS = 12
"""Charts of categories, and of spreads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What goes into a report."""

    documents: int = 12
    """How many documents to show; none: 0."""

    seed: int = 0
    """Which documents: the same for the same seed."""

    title: str = ""
    category: str = ""
    """The field to take scores apart by; empty: one that looks like a category."""

    labels: tuple[str, ...] = ()
    """What the runs are called; by default their models."""

    def __post_init__(self) -> None:
        if not 0 <= self.documents <= 500:
            raise BadOption(
                f"a report cannot show {self.documents} documents", where="--documents", hint="0 to 500"
            )


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything the page writes down."""

    title: str
    subtitle: str
    version: str
    made: str
    tiles: list[dict[str, str]]
    about_scores: str
    score_charts: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    matrix: dict[str, Any] | None = None
    score_notes: list[tuple[str, str]] = field(default_factory=list)
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    categories: list[dict[str, str]] = field(default_factory=list)
    spreads: list[dict[str, str]] = field(default_factory=list)
    paces: list[dict[str, str]] = field(default_factory=list)
    spending: list[dict[str, Any]] = field(default_factory=list)
    documents: list[DocumentView] = field(default_factory=list)
    about_documents: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)

    @property
    def sections(self) -> list[tuple[str, str]]:
        """(anchor, title) of what there is, in order."""
        there = (
            ("scores", "Scores", True),
            ("comparison", "Comparison", bool(self.comparisons)),
            ("outcomes", "Outcomes", True),
            ("details", "Behind the scores", bool(self.categories or self.spreads)),
            ("speed", "Time and cost", bool(self.paces or self.spending)),
            ("documents", "Documents", bool(self.documents)),
            ("settings", "Settings", True),
        )
        return [(name, title) for name, title, shown in there if shown]

    def draw(self, name: str, make: Callable[[Theme], Figure]) -> str:
        """Keep a figure for both kinds of page; returns its name."""
        self.figures[name] = themed(make)
        return name


def make_report(runs: Sequence[Run], options: ReportOptions, *, version: str = "") -> Report:
    """Collect what there is to say of one run, or of several beside each other."""
    facts = [run_facts(run) for run in runs]
    sheets = [RunSheets(run) for run in runs]
    matrix = (
        make_matrix(sheets, best=len(runs) > 1, labels=options.labels)
        if any(one.scores for one in facts) and _numbers(facts)
        else None
    )
    labels = list(options.labels) or [one.model for one in facts]
    if matrix:
        labels = [column.label for column in matrix.columns]
    looked = _look(runs, facts, options)
    _check_category(looked, sheets[0], options)
    report = _opening(facts, labels, options, version)
    _add_scores(report, facts, labels, matrix)
    if len(runs) > 1:
        report.comparisons = comparison_parts(report.draw, sheets, labels)
    _add_outcomes(report, facts, labels)
    _add_details(report, looked, labels)
    _add_time(report, facts, labels)
    report.documents = document_views(runs, labels, looked, options.documents)
    report.about_documents = _about_documents(report, facts, options)
    report.settings = settings_part(facts, labels)
    report.tasks = task_rows(facts)
    return report


def _numbers(facts: Sequence[RunFacts]) -> bool:
    return any(row.value is not None for one in facts for row in one.scores)


Looked = dict[str, list[DocumentFacts | None]]


def _look(runs: Sequence[Run], facts: Sequence[RunFacts], options: ReportOptions) -> Looked:
    """One pass over the documents of each task, of each run; the sample is the first run's that has the task."""
    tasks = list(dict.fromkeys(task.name for one in facts for task in one.tasks))
    return {
        task: [
            document_facts(
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


def _check_category(looked: Looked, first: RunSheets, options: ReportOptions) -> None:
    found = any(one is not None and one.field for sides in looked.values() for one in sides)
    if options.category and not found:
        known = list(dict.fromkeys(name for task in first.tasks for name in first.field_names(task)))
        raise UnknownName(
            f"no scored documents have a field `{options.category}`",
            where="--by",
            hint=f"they have: {', '.join(known)}",
        )


def _opening(
    facts: Sequence[RunFacts], labels: Sequence[str], options: ReportOptions, version: str
) -> Report:
    if len(facts) == 1:
        title = options.title or facts[0].model
        subtitle = f"{facts[0].id} · {_started(facts[0])}{'' if facts[0].finished else ' · unfinished'}"
    else:
        title = options.title or " · ".join(labels)
        subtitle = f"{len(facts)} runs: {', '.join(one.id for one in facts)}"
    about = (
        "The dot is the score, the bar its 95 % interval: where the score would be, 19 times in 20, were the documents"
        " drawn anew."
    )
    if len(facts) > 1:
        about += " Bold in the table: better than every other run beyond chance."
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    return Report(
        title=title,
        subtitle=subtitle,
        version=version,
        made=f"Made {made} with Assay {version}. This file holds everything it shows and asks nobody for anything.",
        tiles=summary_tiles(facts),
        about_scores=about,
    )


def _started(facts: RunFacts) -> str:
    if facts.started is None:
        return "not started"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started))


def _add_scores(
    report: Report, facts: Sequence[RunFacts], labels: Sequence[str], matrix: Matrix | None
) -> None:
    several = len(facts) > 1
    marks = [
        mark
        for one, label in zip(facts, labels, strict=True)
        for mark in score_marks(one, run=label if several else "", main=several)
    ]
    for at, together in enumerate(on_one_scale(marks)):
        names = list(dict.fromkeys((mark.name, mark.metric) for mark in together))
        if not together[0].share and len(names) == 1 and not several:
            continue  # one number on a scale of its own: the table says it
        shown = [mark for mark in together if (mark.name, mark.metric) in names[:_MOST_ROWS]]
        make = _bound(scores_figure, shown, order=labels if several else ())
        report.score_charts.append(report.draw(f"scores-{at}", make))
        if len(names) > _MOST_ROWS:
            report.score_notes.append(
                ("note", f"the chart shows the first {_MOST_ROWS} of {len(names)} rows")
            )
    if several and matrix is not None:
        report.matrix = matrix_part(matrix)
        report.score_notes += [("note", note) for note in matrix.notes]
    elif not several:
        report.rows = score_lines(facts[0])
        report.score_notes += [("note", note) for note in facts[0].notes]
    if not _numbers(facts):
        report.about_scores = _no_numbers(facts)


def _no_numbers(facts: Sequence[RunFacts]) -> str:
    if not all(one.finished for one in facts):
        return "There are no scores yet: the run is not finished."
    return "There are no scores: no document was judged."


def _bound(figure: Callable[..., Figure], *given: Any, **more: Any) -> Callable[[Theme], Figure]:
    return lambda theme: figure(*given, theme, **more)


def _add_outcomes(report: Report, facts: Sequence[RunFacts], labels: Sequence[str]) -> None:
    several = len(facts) > 1
    for at, (one, label) in enumerate(zip(facts, labels, strict=True)):
        bars = outcome_bars(one)[:_MOST_ROWS]
        met = {ending for bar in bars for ending, count in bar.counts.items() if count}
        name, said = "", ""
        if met == {"scored"}:
            said = f"All {one.documents:,} documents were answered and scored."
        else:
            name = report.draw(f"outcomes-{at}", _bound(outcomes_figure, bars))
        notes = [("note", note) for note in one.notes] if several else []
        report.outcomes.append(
            {"title": label if several else "", "chart": name, "said": said, "notes": notes}
        )


def _add_details(
    report: Report, looked: Mapping[str, Sequence[DocumentFacts | None]], labels: Sequence[str]
) -> None:
    for task, sides in looked.items():
        there = [(label, found) for label, found in zip(labels, sides, strict=True) if found is not None]
        parted = [(label, found) for label, found in there if found.categories]
        if parted and len(report.categories) < _MOST_CHARTS:
            first = parted[0][1]
            name = report.draw(f"categories-{task}", _categories(parted, labels))
            about = f"{first.metric} by {first.field}, 95 % intervals"
            report.categories.append({"title": task, "chart": name, "about": about})
        for label, found in there:
            graded = len(found.spread) > 2 or any(bar.low not in (0.0, 1.0) for bar in found.spread)
            if graded and len(report.spreads) < _MOST_CHARTS:
                make = _bound(histogram_figure, found.spread, metric=found.metric)
                name = report.draw(f"spread-{task}-{labels.index(label)}", make)
                title = f"{task} · {label}" if len(labels) > 1 else task
                report.spreads.append(
                    {"title": title, "chart": name, "about": f"documents by {found.metric}"}
                )


def _categories(
    parted: Sequence[tuple[str, DocumentFacts]], labels: Sequence[str]
) -> Callable[[Theme], Figure]:
    """Bars for one run; for several a row for each category with a mark for each run."""
    first = parted[0][1]
    shown = [mark.name for mark in first.categories[:_MOST_ROWS]]
    if len(labels) == 1:
        return _bound(
            categories_figure, first.categories[:_MOST_ROWS], metric=first.metric, share=first.share
        )
    marks = [
        ScoreMark(
            name=name,
            metric=first.metric,
            value=mark.value,
            low=mark.low,
            high=mark.high,
            run=label,
            share=all(found.share for _, found in parted),
            note=f"{mark.documents} documents",
        )
        for label, found in parted
        for name in shown
        for mark in found.categories
        if mark.name == name
    ]
    return _bound(scores_figure, marks, order=labels)


def _add_time(report: Report, facts: Sequence[RunFacts], labels: Sequence[str]) -> None:
    several = len(facts) > 1
    for at, (one, label) in enumerate(zip(facts, labels, strict=True)):
        if one.pace is not None and one.pace.step_s * len(one.pace.asked) >= _SHORTEST_S:
            name = report.draw(f"pace-{at}", _bound(throughput_figure, one.pace))
            report.paces.append({"title": label if several else "", "chart": name})
    report.spending = spending_rows(facts, labels)


def _about_documents(report: Report, facts: Sequence[RunFacts], options: ReportOptions) -> str:
    asked: dict[str, int] = {}
    for task in (task for one in facts for task in one.tasks):
        asked[task.name] = max(task.documents, asked.get(task.name, 0))
    whole = sum(asked.values())
    out_of = f" of {whole:,}" if whole > len(report.documents) else ""
    return (
        f"{len(report.documents)}{out_of}, drawn by chance (seed {options.seed}) from each kind there is: wrong, not"
        " scored, right. Not in proportion: what went wrong is worth more looks."
    )
