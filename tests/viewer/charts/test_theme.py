"""Every chart is plain JSON in both themes and escapes names."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assay.viewer.charts import (
    DARK,
    LIGHT,
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
