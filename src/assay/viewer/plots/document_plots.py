"""Plots of the documents of one task: scores, lengths, tokens, calibration, times and costs.

A scatter plot shows a sample of at most `MAX_POINTS` documents; means, histograms and correlations use all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from assay.stats.histograms import Histogram, choose_scale, compute_histogram
from assay.stats.reliability import compute_reliability
from assay.stats.trends import TrendBin, compute_rank_correlation, compute_trend
from assay.store.documents.measurements import TaskMeasurements
from assay.viewer.charts.amounts import build_distribution_figure
from assay.viewer.charts.reliability import build_reliability_figure
from assay.viewer.charts.trends import build_trend_figure
from assay.viewer.number_format import format_dollars, format_duration
from assay.viewer.plots.records import Plot, PlotTable

__all__ = [
    "DOCUMENT_PLOTS",
    "MAX_POINTS",
    "NO_COSTS",
    "build_document_plot",
    "build_document_plots",
    "sample_positions",
]

Floats = NDArray[np.float64]

MAX_POINTS = 2000
"""The number of documents in a scatter plot."""

NO_COSTS = (
    "No response has a cost: the model is free, its price is unknown, or all responses come from the cache."
    " --prices sets prices."
)
_NO_TOKENS = "The responses have no token counts: the model does not report them."


def build_document_plots(
    found: TaskMeasurements, *, metric: int = 0, output_type: str = "", max_points: int = MAX_POINTS
) -> list[Plot]:
    """Build all plots of a task; those without data say why."""
    return [
        build_document_plot(name, found, metric=metric, output_type=output_type, max_points=max_points)
        for name in DOCUMENT_PLOTS
    ]


def build_document_plot(
    name: str,
    found: TaskMeasurements,
    *,
    metric: int = 0,
    output_type: str = "",
    max_points: int = MAX_POINTS,
) -> Plot:
    """Build one of `DOCUMENT_PLOTS`. `metric`: the row of the scores."""
    request = _Request(found, metric if 0 <= metric < len(found.metrics) else 0, output_type, max_points)
    return DOCUMENT_PLOTS[name](request)


class _Request:
    """What a plot is built from."""

    def __init__(self, found: TaskMeasurements, metric: int, output_type: str, max_points: int) -> None:
        self.found = found
        self.metric = found.metrics[metric][1] if found.metrics else "score"
        self.scores = found.scores[metric] if found.metrics else np.full(len(found.documents), np.nan)
        self.output_type = output_type
        self.max_points = max_points


def _plot_scores(request: _Request) -> Plot:
    title = "Scores"
    histogram = compute_histogram(request.scores)
    if not histogram.count:
        return Plot(name="histogram", title=title, missing="No document of this task has a score.")
    metric = request.metric
    values = ""
    if histogram.exact and len(histogram.bins) <= 4:
        shares = [f"{one.low:g}: {one.count:,} ({one.count / histogram.count:.1%})" for one in histogram.bins]
        values = f" Scores: {', '.join(shares)}."
    return Plot(
        name="histogram",
        title=title,
        summary=f"{histogram.count:,} documents, mean {metric} {histogram.mean:.4f}.{values}",
        table=_tabulate(histogram, metric),
        build=partial(build_distribution_figure, histogram, title=metric, percentiles=False),
    )


def _plot_trend(request: _Request, *, name: str, title: str, column: str, axis: str, unit: str) -> Plot:
    numbers: Floats = getattr(request.found, column)
    kept = ~(np.isnan(numbers) | np.isnan(request.scores))
    if not kept.any():
        return Plot(name=name, title=title, missing=_explain_no_trend(request, numbers, column))
    across, scores, metric = numbers[kept], request.scores[kept], request.metric
    if across.min() == across.max():
        same = (
            f"All documents have the same number of {unit} ({across[0]:,g}), so there is nothing to compare."
        )
        return Plot(name=name, title=title, missing=same)
    trend = compute_trend(across, scores)
    correlation = compute_rank_correlation(across, scores)
    chosen = sample_positions(len(across), request.max_points)
    points = np.stack((request.found.documents[kept].astype(np.float64), across, scores))[:, chosen]
    scale = choose_scale(across, whole=True)
    share = bool(scores.min() >= 0 and scores.max() <= 1)
    related = (
        f" Rank correlation {correlation.value:+.2f} (95 % interval {correlation.low:+.2f} to {correlation.high:+.2f})."
        if correlation is not None
        else " All documents have the same score, so there is no correlation."
    )
    first, last = trend[0], trend[-1]
    summary = (
        f"{len(across):,} documents. Mean {metric} {first.mean:.3f} for {_format_range(first)} {unit},"
        f" {last.mean:.3f} for {_format_range(last)}"
    )
    shown = f"The line shows the means of {len(trend)} groups of documents by number of {unit}."
    if len(chosen) < len(across):
        shown += f" The grey points are a random sample of {len(chosen):,} documents."
    return Plot(
        name=name,
        title=title,
        summary=f"{summary}.{related}",
        note=shown,
        table=PlotTable(
            columns=(f"{column} from", "to", "median", "documents", f"mean {metric}", "low", "high"),
            rows=tuple(
                (one.low, one.high, one.middle, one.documents, one.mean, one.mean_low, one.mean_high)
                for one in trend
            ),
        ),
        build=partial(build_trend_figure, points, trend, title=axis, metric=metric, scale=scale, share=share),
    )


def _explain_no_trend(request: _Request, numbers: Floats, column: str) -> str:
    if not np.isnan(numbers).all():
        return "No document has both a response and a score."
    if column != "length":
        return _NO_TOKENS
    if request.output_type in ("multiple_choice", "loglikelihood", "loglikelihood_rolling"):
        return "The task compares log probabilities, so there are no response texts."
    return "No document has a response."


def _plot_calibration(request: _Request) -> Plot:
    name, title, found = "calibration", "Calibration", request.found
    kept = ~(np.isnan(found.confidence) | np.isnan(found.is_right))
    if not kept.any():
        if request.output_type == "multiple_choice":
            why = "No document has log probabilities of its choices."
        else:
            why = (
                "Calibration needs the log probabilities of choices. This task"
                + (f" is of type {request.output_type}" if request.output_type else " has none")
                + "; only tasks of type multiple_choice have them."
            )
        return Plot(name=name, title=title, missing=why)
    result = compute_reliability(found.confidence[kept], found.is_right[kept])
    gap = result.confidence - result.accuracy
    lean = "overconfident" if gap > 0 else "underconfident"
    return Plot(
        name=name,
        title=title,
        summary=(
            f"Expected calibration error {result.ece:.4f} (95 % interval {result.ece_low:.4f} to {result.ece_high:.4f});"
            f" a calibrated model would have {result.chance_ece:.4f} with these {result.documents:,} documents by chance."
            f" Mean confidence {result.confidence:.1%}, accuracy {result.accuracy:.1%}: {lean} by"
            f" {100 * abs(gap):.1f} points. Brier score {result.brier:.4f}."
        ),
        note=(
            "The confidence is the share of the most likely choice in the probability of all choices, without a"
            " correction for length. Above the dashed line the model is more often right than its confidence says."
        ),
        table=PlotTable(
            columns=("confidence from", "to", "documents", "mean confidence", "accuracy", "low", "high"),
            rows=tuple(
                (
                    one.low,
                    one.high,
                    one.documents,
                    one.confidence,
                    one.accuracy,
                    one.accuracy_low,
                    one.accuracy_high,
                )
                for one in result.bins
            ),
        ),
        build=partial(build_reliability_figure, result),
    )


def _plot_latency(request: _Request) -> Plot:
    histogram = compute_histogram(request.found.response_seconds)
    if not histogram.count:
        return Plot(
            name="latency",
            title="Latency",
            missing="No response has a time: the model does not report times, or all responses come from the cache.",
        )
    return Plot(
        name="latency",
        title="Latency",
        summary=_describe(histogram, _format_seconds, "responses"),
        note="Time of each response of the model, without responses from the cache. In a batch, it is the time of the batch.",
        table=_tabulate(histogram, "seconds", counted="responses"),
        build=partial(
            build_distribution_figure,
            histogram,
            title="seconds per response",
            counted="responses",
            format_value=_format_seconds,
        ),
    )


def _plot_amount(request: _Request, *, name: str, title: str, column: str, axis: str, missing: str) -> Plot:
    histogram = compute_histogram(getattr(request.found, column), whole=column != "cost_usd")
    format_value = format_dollars if column == "cost_usd" else _format_count
    if not histogram.count:
        return Plot(name=name, title=title, missing=missing)
    total = getattr(request.found, f"total_{column}", histogram.total)
    shared = "A response that several documents share counts for each of them, and once in the total."
    return Plot(
        name=name,
        title=title,
        summary=f"{_describe(histogram, format_value, 'documents')} Total {format_value(total)}.",
        note=shared if total < histogram.total * (1 - 1e-9) else "",
        table=_tabulate(histogram, column),
        build=partial(build_distribution_figure, histogram, title=axis, format_value=format_value),
    )


DOCUMENT_PLOTS: dict[str, Callable[[_Request], Plot]] = {
    "histogram": _plot_scores,
    "calibration": _plot_calibration,
    "score_by_length": partial(
        _plot_trend,
        name="score_by_length",
        title="Score by response length",
        column="length",
        axis="characters of the response",
        unit="characters",
    ),
    "score_by_output_tokens": partial(
        _plot_trend,
        name="score_by_output_tokens",
        title="Score by output tokens",
        column="output_tokens",
        axis="output tokens",
        unit="output tokens",
    ),
    "score_by_input_tokens": partial(
        _plot_trend,
        name="score_by_input_tokens",
        title="Score by input tokens",
        column="input_tokens",
        axis="input tokens",
        unit="input tokens",
    ),
    "latency": _plot_latency,
    "output_tokens": partial(
        _plot_amount,
        name="output_tokens",
        title="Output tokens",
        column="output_tokens",
        axis="output tokens per document",
        missing=_NO_TOKENS,
    ),
    "input_tokens": partial(
        _plot_amount,
        name="input_tokens",
        title="Input tokens",
        column="input_tokens",
        axis="input tokens per document",
        missing=_NO_TOKENS,
    ),
    "cost": partial(
        _plot_amount,
        name="cost",
        title="Cost per document",
        column="cost_usd",
        axis="cost per document",
        missing=NO_COSTS,
    ),
}
"""Plot -> its function, in the order of the pages."""


def sample_positions(count: int, limit: int) -> NDArray[np.int64]:
    """Return a random sample of positions in order; the same for the same count."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def _tabulate(histogram: Histogram, name: str, counted: str = "documents") -> PlotTable:
    if histogram.exact:
        rows = tuple((one.low, one.count, one.count / histogram.count) for one in histogram.bins)
        return PlotTable(columns=(name, counted, "share"), rows=rows)
    return PlotTable(
        columns=(f"{name} from", "to", counted, "share"),
        rows=tuple((one.low, one.high, one.count, one.count / histogram.count) for one in histogram.bins),
    )


def _describe(histogram: Histogram, format_value: Callable[[float], str], counted: str) -> str:
    names = {0.5: "median", 0.9: "90th percentile", 0.99: "99th percentile"}
    shares = ", ".join(f"{names[share]} {format_value(value)}" for share, value in histogram.quantiles)
    return (
        f"{histogram.count:,} {counted}: {shares}, mean {format_value(histogram.mean)},"
        f" {format_value(histogram.low)} to {format_value(histogram.high)}."
    )


def _format_range(one: TrendBin) -> str:
    return f"{one.low:,g}" if one.low == one.high else f"{one.low:,g} to {one.high:,g}"


def _format_seconds(seconds: float) -> str:
    if seconds < 0.001:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else format_duration(seconds)


def _format_count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
