"""A run in a notebook: tables that show themselves, documents as a data frame, charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from assay.core.errors import BadOption, MissingPackage, UnknownName
from assay.core.printable import printable
from assay.store.runs import Run as StoredRun
from assay.viewer.charts import DARK, LIGHT, Figure, Theme
from assay.viewer.exports.rows import storable, table_rows
from assay.viewer.run_facts import RunFacts, run_facts
from assay.viewer.run_tables import duration
from assay.viewer.tables import digits, results_text, rows_of

__all__ = ["ResultsText", "ShownRun", "figure_of", "frame_of", "results_html"]

_LIBRARIES = ("pandas", "polars")
_CHARTS = ("scores", "outcomes", "throughput", "categories", "spread")
_ARROWS = {True: "↑", False: "↓", None: ""}
_CELL = "padding:.2em .8em;border-bottom:1px solid rgba(128,128,128,.3);"
_RIGHT = f"{_CELL}text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;"
_LEFT = f"{_CELL}text-align:left;"


class ResultsText(str):
    """A table as text, which a notebook shows as a table."""

    html: str

    @classmethod
    def of(cls, text: str, html: str) -> ResultsText:
        """A text together with how a notebook shows it."""
        made = cls(text)
        made.html = html
        return made

    def _repr_html_(self) -> str:
        return self.html


@dataclass(eq=False, repr=False)
class ShownRun(StoredRun):
    """A run that can be looked at: `table()`, `documents()`, `plot()`."""

    def table(self, frame: str | None = None) -> Any:
        """The results: as text, which a notebook shows as a table; or as a data frame.

        `frame`: `pandas`, `polars`, or `auto` for whichever is installed.
        """
        if frame is None:
            return ResultsText.of(results_text(self), results_html(self))
        return frame_of(_result_rows(self), frame)

    def documents(self, task: str | None = None, *, frame: str | None = None) -> Any:
        """Documents with prompts, responses, answers and scores.

        `documents()` is a data frame of all of them, a row per document and filter; `frame` says of which library
        (`pandas`, `polars`; `auto`: whichever is installed), `task` which ones. `documents("gsm8k")` alone gives plain
        rows one by one, under lm-evaluation-harness's names, and needs neither library.
        """
        if task is not None and task not in self.tasks:
            raise UnknownName(f"the run has no task `{task}`", hint=f"it has: {', '.join(self.tasks)}")
        if task is not None and frame is None:
            return super().documents(task)
        return frame_of(table_rows(self, [task] if task else list(self.tasks)), frame or "auto")

    def plot(self, chart: str = "scores", *, task: str | None = None, theme: str = "light") -> Any:
        """A chart as a plotly figure, which a notebook shows: `scores`, `outcomes`, `throughput`; `categories` and
        `spread` of one task.

        Raises:
            MissingPackage: plotly is not installed.
        """
        figure = figure_of(self, chart, task=task, theme=theme)
        try:
            graphs = import_module("plotly.graph_objects")
        except ModuleNotFoundError:
            raise MissingPackage.of("plotly", "`run.plot()`", extra="viewer") from None
        return graphs.Figure(figure)

    def _repr_html_(self) -> str:
        return results_html(self)


def results_html(run: StoredRun) -> str:
    """What a run is and its results, for a notebook: every text escaped, no script, colours of the page."""
    facts = run_facts(run)
    state = "" if facts.finished else ", unfinished"
    took = "" if facts.seconds is None else f", {duration(facts.seconds)}"
    head = f"<b>{_text(facts.model)}</b> · {_text(facts.id)} · {facts.documents:,} documents{took}{state}"
    titles = ("task", "shots", "metric", "value", "± stderr", "95 % interval", "scored", "unscored", "failed")
    heads = "".join(
        f'<th style="{_LEFT if title in ("task", "metric") else _RIGHT}">{title}</th>' for title in titles
    )
    rows = "".join(_html_rows(facts))
    notes = "".join(f"<div><small>{_text(note)}</small></div>" for note in facts.notes)
    table = f'<table style="border-collapse:collapse;margin:.4em 0"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="assay-run" style="overflow-x:auto"><div>{head}</div>{table}{notes}</div>'


def _html_rows(facts: RunFacts) -> Iterable[str]:
    for row in facts.scores:
        estimate = row.estimate
        name = _text(row.label) if row.first else ""
        label = f'<td style="{_LEFT}padding-left:{0.8 + row.depth}em">{f"<b>{name}</b>" if row.group else name}</td>'
        if estimate is None:
            yield f'<tr>{label}<td colspan="8" style="{_CELL}"></td></tr>'
            continue
        pipeline = "" if estimate.pipeline in ("", "none") else f" ({estimate.pipeline})"
        metric = f"{estimate.metric}{pipeline} {_ARROWS[estimate.higher_is_better]}".rstrip()
        numbers = (
            row.shown,
            "" if estimate.stderr is None else f"± {digits(estimate.stderr)}",
            "" if estimate.interval is None else " – ".join(map(digits, estimate.interval)),
            str(estimate.scored),
            str(estimate.unscored),
            str(estimate.failed),
        )
        shots = "" if row.n_shot is None or not row.first else str(row.n_shot)
        cells = "".join(f'<td style="{_RIGHT}">{_text(number)}</td>' for number in numbers)
        yield f'<tr>{label}<td style="{_RIGHT}">{_text(shots)}</td><td style="{_LEFT}">{_text(metric)}</td>{cells}</tr>'


def _text(text: str) -> str:
    return escape(printable(text))


def _result_rows(run: StoredRun) -> Iterable[dict[str, Any]]:
    for depth, name, facts, estimate in rows_of(run):
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


def frame_of(rows: Iterable[Mapping[str, Any]], library: str = "auto") -> Any:
    """Rows as a data frame of pandas or polars.

    Raises:
        BadOption: No such library is known.
        MissingPackage: It is not installed, or neither is.
    """
    if library not in (*_LIBRARIES, "auto"):
        raise BadOption(f"no data frames of `{library}` are known", hint="pandas, polars, or auto")
    wanted: Sequence[str] = _LIBRARIES if library == "auto" else (library,)
    there = next((name for name in wanted if find_spec(name) is not None), None)
    if there is None:
        package = "pandas" if library == "auto" else library
        raise MissingPackage.of(package, "a data frame", extra="")
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(storable(value))
    frames: Any = import_module(there)
    return frames.DataFrame(columns)


def figure_of(
    run: StoredRun, chart: str = "scores", *, task: str | None = None, theme: str | Theme = "light"
) -> Figure:
    """A chart of a run as plotly's dictionary.

    Raises:
        UnknownName: No such chart, or task.
        BadOption: There is nothing to draw.
    """
    from assay.viewer import charts
    from assay.viewer.document_facts import document_facts
    from assay.viewer.run_facts import outcome_bars, score_marks

    colours = theme if isinstance(theme, Theme) else {"light": LIGHT, "dark": DARK}.get(theme)
    if colours is None:
        raise BadOption(f"no theme is called `{theme}`", hint="light or dark")
    if chart not in _CHARTS:
        raise UnknownName(f"no chart is called `{chart}`", hint=f"one of: {', '.join(_CHARTS)}")
    if chart in ("scores", "outcomes", "throughput"):
        facts = run_facts(run)
        if chart == "outcomes":
            return charts.outcomes_figure(outcome_bars(facts), colours)
        if chart == "scores" and (scales := charts.on_one_scale(score_marks(facts))):
            return charts.scores_figure(scales[0], colours)
        if chart == "throughput" and facts.pace is not None:
            return charts.throughput_figure(facts.pace, colours)
        raise BadOption(f"the run has no {chart} to draw", where=str(run.folder))
    task = task or next(iter(run.tasks))
    if task not in run.tasks:
        raise UnknownName(f"the run has no task `{task}`", hint=f"it has: {', '.join(run.tasks)}")
    found = document_facts(run, task)
    if chart == "categories" and found.categories:
        return charts.categories_figure(found.categories, colours, metric=found.metric, share=found.share)
    if chart == "spread" and found.spread:
        return charts.histogram_figure(found.spread, colours, metric=found.metric)
    raise BadOption(f"the task `{task}` has no {chart} to draw", where=str(run.folder))
