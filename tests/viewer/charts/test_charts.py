"""Charts are JSON, keep their numbers, and take hostile names as text."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assay.core.endings import ENDINGS
from assay.viewer.charts import (
    DARK,
    LIGHT,
    OUTCOME_COLOURS,
    CategoryMark,
    Difference,
    Figure,
    HistogramBar,
    OutcomeBar,
    Pause,
    ScoreMark,
    Theme,
    Throughput,
    build_categories_figure,
    build_forest_figure,
    build_histogram_figure,
    build_outcomes_figure,
    build_scores_figure,
    build_themed_figures,
    build_throughput_figure,
    group_by_scale,
)

HOSTILE = '<a href="javascript:alert(1)">x</a><img src=x onerror=alert(1)>'
FIGURES: dict[str, Callable[[Theme], Figure]] = {
    "scores": lambda theme: build_scores_figure(
        [ScoreMark(name=HOSTILE, metric=HOSTILE, value=0.5, run=HOSTILE, note=HOSTILE, low=0.1, high=0.9)],
        theme,
    ),
    "forest": lambda theme: build_forest_figure(
        [Difference(name=HOSTILE, value=0.1, low=-0.1, high=0.2, note=HOSTILE)], theme
    ),
    "outcomes": lambda theme: build_outcomes_figure(
        [OutcomeBar(name=HOSTILE, counts={"scored": 3, "failed": 1})], theme
    ),
    "throughput": lambda theme: build_throughput_figure(
        Throughput(step_s=2.0, model=[4, 8], cache=[1, 0], pauses=[Pause(at_s=2.0, seconds=7200.0)]), theme
    ),
    "categories": lambda theme: build_categories_figure(
        [CategoryMark(name=HOSTILE, value=0.5, documents=4)], theme, metric=HOSTILE
    ),
    "histogram": lambda theme: build_histogram_figure(
        [HistogramBar(low=0.0, high=0.5, documents=4), HistogramBar(low=0.5, high=1.0, documents=1)],
        theme,
        metric=HOSTILE,
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_plain_json_in_both_themes(name: str) -> None:
    both = build_themed_figures(FIGURES[name])
    assert json.loads(json.dumps(both, allow_nan=False)) == both
    light, dark = both["light"], both["dark"]
    assert light["layout"]["font"]["color"] == LIGHT.ink
    assert dark["layout"]["font"]["color"] == DARK.ink
    assert light["data"] and len(light["data"]) == len(dark["data"])


@pytest.mark.parametrize("name", FIGURES)
def test_names_are_escaped_in_every_figure(name: str) -> None:
    written = json.dumps(FIGURES[name](LIGHT))
    assert "<a " not in written
    assert "<img" not in written


def test_a_score_has_its_interval_and_a_group_is_bold() -> None:
    marks = [
        ScoreMark(name="all", metric="acc", value=0.5, low=0.4, high=0.7, group=True),
        ScoreMark(name="one", metric="acc", value=0.25, depth=1),
    ]
    figure = build_scores_figure(marks, LIGHT)
    (trace,) = figure["data"]
    assert trace["x"] == [0.5, 0.25]
    assert trace["error_x"]["array"] == pytest.approx([0.2, 0.0])
    assert trace["error_x"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert figure["layout"]["yaxis"]["ticktext"] == ["<b>all</b>", "  one"]
    assert figure["layout"]["xaxis"]["range"] == [-0.02, 1.02]


def test_runs_share_a_row_and_are_named_in_the_legend() -> None:
    marks = [
        ScoreMark(name="t", metric="acc", value=value, run=run) for run, value in (("a", 0.1), ("b", 0.2))
    ]
    figure = build_scores_figure(marks, LIGHT)
    first, second = figure["data"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["y"][0] < 0 < second["y"][0]
    assert first["marker"]["color"] != second["marker"]["color"]
    assert figure["layout"]["showlegend"]


def test_a_run_has_the_same_colour_in_figures_that_share_an_order() -> None:
    mark = ScoreMark(name="t", metric="acc", value=0.1, run="second")
    alone = build_scores_figure([mark], LIGHT, order=["first", "second"])
    assert alone["data"][0]["marker"]["color"] == LIGHT.series[1]
    assert alone["data"][0]["y"] == [0]


def test_metrics_with_other_scales_have_their_own_figures() -> None:
    marks = [
        ScoreMark(name="t", metric="acc", value=0.1),
        ScoreMark(name="t", metric="perplexity", value=20.0, share=False),
        ScoreMark(name="u", metric="f1", value=0.3),
        ScoreMark(name="u", metric="perplexity", value=7.0, share=False),
    ]
    assert [[mark.value for mark in together] for together in group_by_scale(marks)] == [
        [0.1, 0.3],
        [20.0, 7.0],
    ]


def test_the_forest_plot_is_centred_on_zero_and_colours_significant_differences() -> None:
    rows = [
        Difference(name="up", value=0.1, low=0.05, high=0.15, better=True),
        Difference(name="down", value=-0.2, low=-0.3, high=-0.1, better=False),
        Difference(name="none", value=0.0, low=-0.1, high=0.1),
    ]
    figure = build_forest_figure(rows, LIGHT)
    colours = [trace["marker"]["color"] for trace in figure["data"]]
    assert colours == [LIGHT.better, LIGHT.worse, LIGHT.faint]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low == -high == pytest.approx(-32.4)
    assert figure["layout"]["shapes"][0]["x0"] == 0
    assert figure["data"][0]["x"] == pytest.approx([10.0]), "shares are shown in points"


def test_a_difference_of_another_unit_keeps_its_unit() -> None:
    figure = build_forest_figure([Difference(name="p", value=1.5, low=1.0, high=2.0, share=False)], LIGHT)
    assert figure["data"][0]["x"] == [1.5]


def test_every_ending_has_a_distinct_colour() -> None:
    assert list(OUTCOME_COLOURS)[:-1] == list(ENDINGS)
    assert len(set(OUTCOME_COLOURS.values())) == len(OUTCOME_COLOURS)


def test_outcomes_are_shares_and_omit_endings_without_documents() -> None:
    bars = [
        OutcomeBar(name="a", counts={"failed": 1, "scored": 3}),
        OutcomeBar(name="b", counts={"scored": 5}),
    ]
    figure = build_outcomes_figure(bars, DARK)
    assert [(trace["name"], trace["x"]) for trace in figure["data"]] == [
        ("scored", [0.75, 1.0]),
        ("failed", [0.25, 0.0]),
    ]


def test_throughput_is_in_responses_per_second() -> None:
    figure = build_throughput_figure(Throughput(step_s=2.0, model=[4, 8]), LIGHT)
    assert figure["data"][0]["y"] == [2.0, 4.0]
    assert figure["data"][0]["x"] == [1.0, 3.0]
    assert len(figure["data"]) == 1


def test_a_metric_with_few_values_has_a_bar_for_each() -> None:
    bars = [HistogramBar(low=0.0, high=0.0, documents=1), HistogramBar(low=1.0, high=1.0, documents=3)]
    figure = build_histogram_figure(bars, LIGHT)
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "1"]
    assert figure["data"][0]["y"] == [1, 3]
