"""The throughput chart."""

from __future__ import annotations

from assay.viewer.charts import (
    LIGHT,
    Throughput,
    build_throughput_figure,
)


def test_throughput_is_in_responses_per_second() -> None:
    figure = build_throughput_figure(Throughput(step_s=2.0, model=[4, 8]), LIGHT)
    assert figure["data"][0]["y"] == [2.0, 4.0]
    assert figure["data"][0]["x"] == [1.0, 3.0]
    assert len(figure["data"]) == 1
