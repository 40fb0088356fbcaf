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
    OutcomeBar,
    Pace,
    Pause,
    ScoreMark,
    SpreadBar,
    Theme,
    categories_figure,
    forest_figure,
    histogram_figure,
    on_one_scale,
    outcomes_figure,
    scores_figure,
    themed,
    throughput_figure,
)

HOSTILE = '<a href="javascript:alert(1)">x</a><img src=x onerror=alert(1)>'
FIGURES: dict[str, Callable[[Theme], Figure]] = {
    "scores": lambda theme: scores_figure(
        [ScoreMark(name=HOSTILE, metric=HOSTILE, value=0.5, run=HOSTILE, note=HOSTILE, low=0.1, high=0.9)],
        theme,
    ),
    "forest": lambda theme: forest_figure(
        [Difference(name=HOSTILE, value=0.1, low=-0.1, high=0.2, note=HOSTILE)], theme
    ),
    "outcomes": lambda theme: outcomes_figure(
        [OutcomeBar(name=HOSTILE, counts={"scored": 3, "failed": 1})], theme
    ),
    "throughput": lambda theme: throughput_figure(
        Pace(step_s=2.0, asked=[4, 8], cached=[1, 0], pauses=[Pause(at_s=2.0, seconds=7200.0)]), theme
    ),
    "categories": lambda theme: categories_figure(
        [CategoryMark(name=HOSTILE, value=0.5, documents=4)], theme, metric=HOSTILE
    ),
    "histogram": lambda theme: histogram_figure(
        [SpreadBar(low=0.0, high=0.5, documents=4), SpreadBar(low=0.5, high=1.0, documents=1)],
        theme,
        metric=HOSTILE,
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_plain_json_for_both_kinds_of_page(name: str) -> None:
    both = themed(FIGURES[name])
    assert json.loads(json.dumps(both, allow_nan=False)) == both
    light, dark = both["light"], both["dark"]
    assert light["layout"]["font"]["color"] == LIGHT.ink
    assert dark["layout"]["font"]["color"] == DARK.ink
    assert light["data"] and len(light["data"]) == len(dark["data"])


@pytest.mark.parametrize("name", FIGURES)
def test_a_hostile_name_is_text_in_every_figure(name: str) -> None:
    written = json.dumps(FIGURES[name](LIGHT))
    assert "<a " not in written
    assert "<img" not in written


def test_a_score_has_its_interval_and_a_group_is_bold() -> None:
    marks = [
        ScoreMark(name="all", metric="acc", value=0.5, low=0.4, high=0.7, group=True),
        ScoreMark(name="one", metric="acc", value=0.25, depth=1),
    ]
    figure = scores_figure(marks, LIGHT)
    (trace,) = figure["data"]
    assert trace["x"] == [0.5, 0.25]
    assert trace["error_x"]["array"] == pytest.approx([0.2, 0.0])
    assert trace["error_x"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert figure["layout"]["yaxis"]["ticktext"] == ["<b>all</b>", "  one"]
    assert figure["layout"]["xaxis"]["range"] == [-0.02, 1.02]


def test_runs_stand_side_by_side_in_a_row_and_are_named_above() -> None:
    marks = [
        ScoreMark(name="t", metric="acc", value=value, run=run) for run, value in (("a", 0.1), ("b", 0.2))
    ]
    figure = scores_figure(marks, LIGHT)
    first, second = figure["data"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["y"][0] < 0 < second["y"][0]
    assert first["marker"]["color"] != second["marker"]["color"]
    assert figure["layout"]["showlegend"]


def test_a_run_has_the_same_colour_in_figures_that_share_an_order() -> None:
    mark = ScoreMark(name="t", metric="acc", value=0.1, run="second")
    alone = scores_figure([mark], LIGHT, order=["first", "second"])
    assert alone["data"][0]["marker"]["color"] == LIGHT.series[1]
    assert alone["data"][0]["y"] == [0]


def test_numbers_of_other_scales_get_figures_of_their_own() -> None:
    marks = [
        ScoreMark(name="t", metric="acc", value=0.1),
        ScoreMark(name="t", metric="perplexity", value=20.0, share=False),
        ScoreMark(name="u", metric="f1", value=0.3),
        ScoreMark(name="u", metric="perplexity", value=7.0, share=False),
    ]
    assert [[mark.value for mark in together] for together in on_one_scale(marks)] == [
        [0.1, 0.3],
        [20.0, 7.0],
    ]


def test_the_forest_plot_has_zero_in_its_middle_and_colours_what_is_sure() -> None:
    rows = [
        Difference(name="up", value=0.1, low=0.05, high=0.15, better=True),
        Difference(name="down", value=-0.2, low=-0.3, high=-0.1, better=False),
        Difference(name="none", value=0.0, low=-0.1, high=0.1),
    ]
    figure = forest_figure(rows, LIGHT)
    colours = [trace["marker"]["color"] for trace in figure["data"]]
    assert colours == [LIGHT.better, LIGHT.worse, LIGHT.faint]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low == -high == pytest.approx(-32.4)
    assert figure["layout"]["shapes"][0]["x0"] == 0
    assert figure["data"][0]["x"] == pytest.approx([10.0]), "shares are shown in points"


def test_a_difference_of_another_unit_keeps_its_unit() -> None:
    figure = forest_figure([Difference(name="p", value=1.5, low=1.0, high=2.0, share=False)], LIGHT)
    assert figure["data"][0]["x"] == [1.5]


def test_every_ending_has_a_colour_of_its_own() -> None:
    assert list(OUTCOME_COLOURS)[:-1] == list(ENDINGS)
    assert len(set(OUTCOME_COLOURS.values())) == len(OUTCOME_COLOURS)


def test_outcomes_are_shares_of_each_bar_and_show_only_what_happened() -> None:
    bars = [
        OutcomeBar(name="a", counts={"failed": 1, "scored": 3}),
        OutcomeBar(name="b", counts={"scored": 5}),
    ]
    figure = outcomes_figure(bars, DARK)
    assert [(trace["name"], trace["x"]) for trace in figure["data"]] == [
        ("scored", [0.75, 1.0]),
        ("failed", [0.25, 0.0]),
    ]


def test_pace_is_in_responses_per_second() -> None:
    figure = throughput_figure(Pace(step_s=2.0, asked=[4, 8]), LIGHT)
    assert figure["data"][0]["y"] == [2.0, 4.0]
    assert figure["data"][0]["x"] == [1.0, 3.0]
    assert len(figure["data"]) == 1


def test_a_score_of_few_values_gets_a_bar_for_each() -> None:
    bars = [SpreadBar(low=0.0, high=0.0, documents=1), SpreadBar(low=1.0, high=1.0, documents=3)]
    figure = histogram_figure(bars, LIGHT)
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "1"]
    assert figure["data"][0]["y"] == [1, 3]
