"""The forest plot."""

from __future__ import annotations

import pytest

from assay.viewer.charts import (
    LIGHT,
    Difference,
    build_forest_figure,
)


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
