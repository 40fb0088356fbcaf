"""The chart of scores with intervals."""

from __future__ import annotations

import pytest

from assay.viewer.charts import (
    LIGHT,
    ScoreMark,
    build_scores_figure,
    group_by_scale,
)


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
