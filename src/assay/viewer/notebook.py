"""Runs in a notebook: tables rendered as HTML, documents as a data frame, charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from assay.core.errors import InvalidOption, MissingPackage, UnknownName
from assay.core.terminal_text import escape_control_characters
from assay.store.runs.run import Run as StoredRun
from assay.viewer.number_format import DIRECTION_ARROWS, format_duration, format_float
from assay.viewer.results.score_rows import iterate_score_rows

if TYPE_CHECKING:
    from assay.viewer.charts import Figure, Theme
    from assay.viewer.plots.records import Plot
    from assay.viewer.results.run_overview import RunOverview

__all__ = [
    "NotebookRun",
    "ResultsText",
    "build_data_frame",
    "build_figure",
    "build_plot",
    "render_results_html",
]

_LIBRARIES = ("pandas", "polars")
_CHARTS = ("scores", "outcomes", "throughput", "categories", "spread")
_OTHER_PLOTS = ("cost_by_task", "history", "scatter", "task_scatter")
_CELL = "padding:.2em .8em;border-bottom:1px solid rgba(128,128,128,.3);"
_RIGHT = f"{_CELL}text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;"
_LEFT = f"{_CELL}text-align:left;"


class ResultsText(str):
    """A table as text with an HTML representation for notebooks."""

    html: str

    @classmethod
    def build(cls, text: str, html: str) -> ResultsText:
        """Build the text with its HTML representation."""
        result = cls(text)
        result.html = html
        return result

    def _repr_html_(self) -> str:
        return self.html


@dataclass(eq=False, repr=False)
class NotebookRun(StoredRun):
    """A run with `table()`, `documents()` and `plot()`."""

    def table(self, frame: str | None = None) -> Any:
        """Return the results as text, which a notebook renders as a table, or as a data frame.

        `frame`: `pandas`, `polars`, or `auto` for the one that is installed.
        """
        if frame is None:
            from assay.viewer.terminal.results_table import format_results

            return ResultsText.build(format_results(self), render_results_html(self))
        return build_data_frame(_iterate_result_rows(self), frame)

    def documents(self, task: str | None = None, *, frame: str = "auto", where: str = "") -> Any:
        """Return a data frame with a row per document and filter: prompt, response, answer, scores.

        `task`: only the documents of this task. `frame`: `pandas`, `polars`, or `auto` for the one that is installed.
        `where`: a filter expression, such as `score<1 and length>400 and not truncated`.
        `samples(task)` yields rows with the keys of lm-evaluation-harness and needs neither library.

        Raises:
            FilterError: The filter expression is invalid.
            MissingPackage: Neither pandas nor polars is installed.
        """
        if task is not None and task not in self.tasks:
            raise UnknownName(f"the run has no task `{task}`", hint=f"it has: {', '.join(self.tasks)}")
        chosen = None
        if (where or "").strip():
            from assay.store.filters.selection import select_matching_documents
            from assay.store.filters.syntax import FilterError

            try:
                chosen = select_matching_documents(self, where, [task] if task else ())
            except FilterError as error:
                raise error.point_at(where, "where") from None
        from assay.viewer.exports.rows import iterate_table_rows

        return build_data_frame(iterate_table_rows(self, [task] if task else list(self.tasks), chosen), frame)

    def plot(
        self,
        chart: str = "scores",
        *,
        task: str | None = None,
        metric: str = "",
        other: Any = None,
        theme: str = "light",
    ) -> Any:
        """Return a chart as a plotly figure.

        Of the run: `scores`, `outcomes`, `throughput`, `cost_by_task`. Of a task: `categories`, `spread`, `histogram`,
        `calibration`, `score_by_length`, `score_by_output_tokens`, `score_by_input_tokens`, `latency`, `output_tokens`,
        `input_tokens`, `cost`, and `history`, which includes the runs in the same folder. With another run: `scatter` of the
        documents of a task, `task_scatter`.

        `task`: by default the first. `metric`: by default the first of the task. `other`: a run, or its name or folder.

        Raises:
            MissingPackage: plotly is not installed.
            InvalidOption: The run has no data for this chart.
        """
        figure = build_figure(self, chart, task=task, metric=metric, other=other, theme=theme)
        try:
            graphs = import_module("plotly.graph_objects")
        except ModuleNotFoundError:
            raise MissingPackage.of("plotly", "`run.plot()`", extra="viewer") from None
        return graphs.Figure(figure)

    def plot_table(
        self,
        chart: str,
        *,
        task: str | None = None,
        metric: str = "",
        other: Any = None,
        frame: str = "auto",
    ) -> Any:
        """Return the numbers of a chart as a data frame; `scores`, `outcomes`, `throughput`, `categories` and `spread` have none.

        The arguments are those of `plot()`. `frame`: `pandas`, `polars`, or `auto` for the one that is installed.
        """
        table = build_plot(self, chart, task=task, metric=metric, other=other).table
        return build_data_frame((dict(zip(table.columns, row, strict=True)) for row in table.rows), frame)

    def __repr__(self) -> str:
        """Return the model, the first scores and the folder in one line."""
        from assay.viewer.results.run_overview import build_run_overview

        scores = [
            f"{row.label} {row.estimate.metric} {row.text}"
            for row in build_run_overview(self).scores
            if row.estimate is not None and row.is_first
        ]
        shown = ", ".join(scores[:3]) + (f", … {len(scores) - 3} more" if len(scores) > 3 else "")
        state = "" if self.finished else ", unfinished"
        head = f"{self.model}: {shown}" if shown else self.model
        return f"Run({head}{state}, {str(self.folder)!r})"

    def _repr_html_(self) -> str:
        return render_results_html(self)


def render_results_html(run: StoredRun) -> str:
    """Return a run's results as HTML for a notebook: all text escaped, no scripts, the notebook's colours."""
    from assay.viewer.results.run_overview import build_run_overview

    facts = build_run_overview(run)
    state = "" if facts.finished else ", unfinished"
    took = "" if facts.seconds is None else f", {format_duration(facts.seconds)}"
    head = f"<b>{_escape_text(facts.model)}</b> · {_escape_text(facts.id)} · {facts.documents:,} documents{took}{state}"
    titles = (
        "task",
        "n-shot",
        "metric",
        "value",
        "± stderr",
        "95 % interval",
        "scored",
        "unscored",
        "failed",
    )
    heads = "".join(
        f'<th style="{_LEFT if title in ("task", "metric") else _RIGHT}">{title}</th>' for title in titles
    )
    rows = "".join(_iterate_html_rows(facts))
    notes = "".join(f"<div><small>{_escape_text(note)}</small></div>" for note in facts.notes)
    table = f'<table style="border-collapse:collapse;margin:.4em 0"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="assay-run" style="overflow-x:auto"><div>{head}</div>{table}{notes}</div>'


def _iterate_html_rows(facts: RunOverview) -> Iterable[str]:
    for row in facts.scores:
        estimate = row.estimate
        name = _escape_text(row.label) if row.is_first else ""
        label = f'<td style="{_LEFT}padding-left:{0.8 + row.depth}em">{f"<b>{name}</b>" if row.group else name}</td>'
        if estimate is None:
            yield f'<tr>{label}<td colspan="8" style="{_CELL}"></td></tr>'
            continue
        pipeline = "" if estimate.pipeline in ("", "none") else f" ({estimate.pipeline})"
        metric = f"{estimate.metric}{pipeline} {DIRECTION_ARROWS[estimate.higher_is_better]}".rstrip()
        numbers = (
            row.text,
            "" if estimate.stderr is None else f"± {format_float(estimate.stderr)}",
            "" if estimate.interval is None else " – ".join(map(format_float, estimate.interval)),
            str(estimate.scored),
            str(estimate.unscored),
            str(estimate.failed),
        )
        n_shot = "" if row.n_shot is None or not row.is_first else str(row.n_shot)
        cells = "".join(f'<td style="{_RIGHT}">{_escape_text(number)}</td>' for number in numbers)
        yield f'<tr>{label}<td style="{_RIGHT}">{_escape_text(n_shot)}</td><td style="{_LEFT}">{_escape_text(metric)}</td>{cells}</tr>'


def _escape_text(text: str) -> str:
    return escape(escape_control_characters(text))


def _iterate_result_rows(run: StoredRun) -> Iterable[dict[str, Any]]:
    for depth, name, facts, estimate in iterate_score_rows(run):
        if estimate is None:
            continue
        low, high = estimate.interval or (None, None)
        value = estimate.value
        yield {
            "task": name,
            "label": str(facts.get("alias") or name),
            "depth": depth,
            "group": name in run.groups,
            "filter": estimate.pipeline,
            "metric": estimate.metric,
            "higher_is_better": estimate.higher_is_better,
            "value": float(value) if isinstance(value, (int, float)) else None,
            "stderr": estimate.stderr,
            "low": low,
            "high": high,
            "scored": estimate.scored,
            "unscored": estimate.unscored,
            "failed": estimate.failed,
        }


def build_data_frame(rows: Iterable[Mapping[str, Any]], library: str = "auto") -> Any:
    """Return rows as a data frame of pandas or polars.

    Raises:
        InvalidOption: The library is not supported.
        MissingPackage: The library is not installed.
    """
    if library not in (*_LIBRARIES, "auto"):
        raise InvalidOption(f"unsupported data frame library `{library}`", hint="use pandas, polars or auto")
    wanted: Sequence[str] = _LIBRARIES if library == "auto" else (library,)
    there = next((name for name in wanted if find_spec(name) is not None), None)
    if there is None:
        package = "pandas" if library == "auto" else library
        raise MissingPackage.of(package, "a data frame", extra="")
    from assay.viewer.exports.rows import escape_surrogates

    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(escape_surrogates(value))
    frames: Any = import_module(there)
    return frames.DataFrame(columns)


def build_plot(
    run: StoredRun, chart: str, *, task: str | None = None, metric: str = "", other: Any = None
) -> Plot:
    """Build a plot of a run: its figure, its numbers and a summary.

    Raises:
        UnknownName: There is no such chart, task or metric.
        InvalidOption: The run has no data for this chart, or another run is missing.
    """
    from assay.viewer.plots.document_plots import DOCUMENT_PLOTS
    from assay.viewer.plots.run_plots import build_cost_plot

    if chart not in (*DOCUMENT_PLOTS, *_OTHER_PLOTS):
        raise UnknownName(
            f"unknown chart `{chart}`", hint=f"one of: {', '.join((*DOCUMENT_PLOTS, *_OTHER_PLOTS))}"
        )
    task = _check_task(run, task)
    if chart in DOCUMENT_PLOTS:
        plot = _build_task_plot(run, chart, task, metric)
    elif chart == "cost_by_task":
        plot = build_cost_plot(run)
    elif chart == "history":
        plot = _build_history(run, task, metric)
    else:
        plot = _build_scatter(run, chart, task, metric, other)
    if plot.build is None:
        raise InvalidOption(
            f"the run has no data for the chart `{chart}`", where=str(run.folder), hint=plot.missing
        )
    return plot


def _check_task(run: StoredRun, task: str | None) -> str:
    task = task or next(iter(run.tasks), "")
    if task not in run.tasks:
        raise UnknownName(f"the run has no task `{task}`", hint=f"it has: {', '.join(run.tasks)}")
    return task


def _build_task_plot(run: StoredRun, chart: str, task: str, metric: str) -> Plot:
    from assay.store.documents.measurements import read_measurements
    from assay.viewer.plots.document_plots import build_document_plot

    found = read_measurements(run, [task])[task]
    names = [name for _, name in found.metrics]
    if metric and metric not in names:
        raise UnknownName(f"the task `{task}` has no metric `{metric}`", hint=f"it has: {', '.join(names)}")
    return build_document_plot(
        chart,
        found,
        metric=names.index(metric) if metric else 0,
        output_type=str(run.tasks[task].get("output_type", "")),
    )


def _build_history(run: StoredRun, task: str, metric: str) -> Plot:
    from assay.store.runs.lookup import find_run_folders
    from assay.viewer.plots.run_plots import build_history_plot, collect_history

    def open_each() -> Iterator[StoredRun]:
        for folder in find_run_folders([run.folder.parent]):
            with closing(StoredRun(folder)) as one:  # there may be more runs than a process can open files
                yield one

    found, damaged = collect_history(open_each(), task, metric)
    return build_history_plot(found, task, metric=metric, damaged=damaged)


def _build_scatter(run: StoredRun, chart: str, task: str, metric: str, other: Any) -> Plot:
    from assay.viewer.comparison.sources import open_source
    from assay.viewer.plots.comparison_plots import build_document_scatter, build_task_scatter

    if other is None:
        raise InvalidOption(f"the chart `{chart}` needs a second run", hint=f'run.plot("{chart}", other=run)')
    with ExitStack() as opened:
        sources = [open_source(run), open_source(other)]
        for source in sources:
            opened.callback(source.close)
        if chart == "task_scatter":
            return build_task_scatter(sources[0], sources[1])
        return build_document_scatter(sources[0], sources[1], task, metric=metric)


def build_figure(
    run: StoredRun,
    chart: str = "scores",
    *,
    task: str | None = None,
    metric: str = "",
    other: Any = None,
    theme: str | Theme = "light",
) -> Figure:
    """Return a chart of a run as a plotly dictionary.

    Raises:
        UnknownName: There is no such chart or task.
        InvalidOption: The run has no data for this chart.
    """
    from assay.viewer import charts
    from assay.viewer.documents.statistics import collect_document_statistics
    from assay.viewer.plots.document_plots import DOCUMENT_PLOTS
    from assay.viewer.results.run_overview import build_outcome_bars, build_run_overview, build_score_marks

    colours = {"light": charts.LIGHT, "dark": charts.DARK}.get(theme) if isinstance(theme, str) else theme
    if colours is None:
        raise InvalidOption(f"unknown theme `{theme}`", hint="use light or dark")
    if chart in DOCUMENT_PLOTS or chart in _OTHER_PLOTS:
        plot = build_plot(run, chart, task=task, metric=metric, other=other)
        assert plot.build is not None
        return plot.build(colours)
    if chart not in _CHARTS:
        every = (*_CHARTS, *DOCUMENT_PLOTS, *_OTHER_PLOTS)
        raise UnknownName(f"unknown chart `{chart}`", hint=f"one of: {', '.join(every)}")
    if chart in ("scores", "outcomes", "throughput"):
        facts = build_run_overview(run)
        if chart == "outcomes":
            return charts.build_outcomes_figure(build_outcome_bars(facts), colours)
        if chart == "scores" and (scales := charts.group_by_scale(build_score_marks(facts))):
            return charts.build_scores_figure(scales[0], colours)
        if chart == "throughput" and facts.throughput is not None:
            return charts.build_throughput_figure(facts.throughput, colours)
        raise InvalidOption(f"the run has no data for the chart `{chart}`", where=str(run.folder))
    task = _check_task(run, task)
    found = collect_document_statistics(run, task)
    if chart == "categories" and found.categories:
        return charts.build_categories_figure(
            found.categories, colours, metric=found.metric, share=found.share
        )
    if chart == "spread" and found.histogram:
        return charts.build_histogram_figure(found.histogram, colours, metric=found.metric)
    raise InvalidOption(f"the task `{task}` has no data for the chart `{chart}`", where=str(run.folder))
