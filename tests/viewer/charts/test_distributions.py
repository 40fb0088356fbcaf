"""The histogram of scores."""

from __future__ import annotations

from assay.viewer.charts import (
    LIGHT,
    HistogramBar,
    build_histogram_figure,
)


def test_a_metric_with_few_values_has_a_bar_for_each() -> None:
    bars = [HistogramBar(low=0.0, high=0.0, documents=1), HistogramBar(low=1.0, high=1.0, documents=3)]
    figure = build_histogram_figure(bars, LIGHT)
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "1"]
    assert figure["data"][0]["y"] == [1, 3]
