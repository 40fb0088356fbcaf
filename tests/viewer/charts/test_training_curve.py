from __future__ import annotations

from assay.viewer.charts import LIGHT
from assay.viewer.charts.training_curve import CheckpointMark, build_training_figure


def test_marks_have_intervals_and_show_alarms_and_the_best() -> None:
    marks = [
        CheckpointMark(name="<b>1", step=1, value=0.5, low=0.4, high=0.7, best=True),
        CheckpointMark(name="2", step=2, value=0.3, alarm=True, change="-0.2"),
    ]
    figure = build_training_figure(marks, LIGHT, metric="acc", share=True)
    (trace,) = figure["data"]
    assert trace["error_y"]["array"] == [0.7 - 0.5, 0.0]
    assert trace["marker"]["symbol"] == ["star", "x"]
    assert trace["marker"]["color"] == [LIGHT.better, LIGHT.worse]
    assert trace["hovertext"][0].startswith("<b>&lt;b&gt;1</b>") and "regression" in trace["hovertext"][1]
