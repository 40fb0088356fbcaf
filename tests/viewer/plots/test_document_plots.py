"""The plots of a task against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from assay.store.documents.measurements import TaskMeasurements, read_measurements
from assay.store.runs.run import Run
from assay.viewer.charts import DARK, LIGHT
from assay.viewer.plots.document_plots import DOCUMENT_PLOTS, build_document_plot, build_document_plots

Runs = tuple[Run, Run]


def measure_task(**columns: object) -> TaskMeasurements:
    """Make the measurements of four documents, without those that are not given."""
    nothing = np.full(4, np.nan)
    known: dict[str, object] = dict.fromkeys(
        ("length", "input_tokens", "output_tokens", "cost_usd", "confidence", "is_right"), nothing
    )
    return TaskMeasurements(
        **{  # type: ignore[arg-type]
            "task": "t",
            "metrics": (("none", "acc"),),
            "documents": np.arange(4),
            "scores": np.array([[0.0, 1.0, 1.0, 1.0]]),
            "response_seconds": np.empty(0),
            "total_input_tokens": 0.0,
            "total_output_tokens": 0.0,
            **known,
            **columns,
        }
    )


def test_every_number_of_a_run_is_measured(plot_runs: Runs) -> None:
    found = read_measurements(plot_runs[0])
    sums, choices = found["sums"], found["choices"]
    numbers = np.arange(40)
    assert sums.metrics == (("find", "exact_match"),)
    assert sums.scores[0].tolist() == (numbers % 4 != 0).astype(float).tolist()
    assert sums.output_tokens.tolist() == (numbers + 4).tolist()
    assert sums.input_tokens.tolist() == (numbers + 100).tolist()
    assert sums.cost_usd == pytest.approx(1e-4 * (numbers + 1))
    assert np.sort(sums.response_seconds) == pytest.approx(0.1 * (numbers + 1))
    assert sums.length[7] == 5 * 7 + len("The answer is 8")
    assert np.isnan(sums.confidence).all()
    assert choices.confidence == pytest.approx(np.where(numbers < 20, 0.75, 0.9))
    assert choices.is_right.tolist() == choices.scores[0].tolist()
    assert np.isnan(choices.length).all() and not len(choices.response_seconds)


def test_calibration_of_two_confidences(plot_runs: Runs) -> None:
    plot = build_document_plot(
        "calibration", read_measurements(plot_runs[0])["choices"], output_type="multiple_choice"
    )
    # half of the documents are off by 0, half by 0.4
    assert "Expected calibration error 0.2000" in plot.summary
    assert "Mean confidence 82.5%, accuracy 62.5%: overconfident by 20.0 points" in plot.summary
    assert [row[2:5] for row in plot.table.rows] == [
        (20, pytest.approx(0.75), 0.75),
        (20, pytest.approx(0.9), 0.5),
    ]
    assert plot.build is not None
    figure = plot.build(LIGHT)
    accuracy = figure["data"][1]
    assert accuracy["y"] == [0.75, 0.5]
    assert [low < 0.3 for low in accuracy["error_y"]["arrayminus"]] == [True, True]
    assert figure["data"][2]["y"] == [20, 20]


def test_scores_tokens_latency_and_costs(plot_runs: Runs) -> None:
    plots = {
        plot.name: plot
        for plot in build_document_plots(
            read_measurements(plot_runs[0])["sums"], output_type="generate_until"
        )
    }
    assert list(plots) == list(DOCUMENT_PLOTS)
    assert plots["histogram"].table.rows == ((0.0, 10, 0.25), (1.0, 30, 0.75))
    assert plots["histogram"].summary.startswith("40 documents, mean exact_match 0.7500.")
    assert "median 23.5" in plots["output_tokens"].summary and "Total 940." in plots["output_tokens"].summary
    assert plots["output_tokens"].note == ""
    assert "40 responses: median 2.05 s, 90th percentile 3.61 s" in plots["latency"].summary
    assert "Total $0.082" in plots["cost"].summary
    assert sum(row[2] for row in plots["cost"].table.rows) == 40
    build = plots["cost"].build
    assert build is not None and build(LIGHT)["layout"]["xaxis"]["exponentformat"] == "none"
    trend = plots["score_by_output_tokens"]
    assert [row[3] for row in trend.table.rows] == [4] * 10
    assert [row[4] for row in trend.table.rows] == [0.75] * 10
    assert "only tasks of type multiple_choice" in plots["calibration"].missing
    for plot in plots.values():
        if plot.build is not None:
            for theme in (LIGHT, DARK):
                layout = plot.build(theme)["layout"]
                assert layout["xaxis"]["title"]["text"] and layout["yaxis"]["title"]["text"]


@pytest.mark.parametrize(
    ("name", "output_type", "why"),
    [
        ("score_by_length", "multiple_choice", "compares log probabilities"),
        ("score_by_length", "generate_until", "No document has a response."),
        ("score_by_output_tokens", "generate_until", "no token counts"),
        ("input_tokens", "generate_until", "no token counts"),
        ("latency", "generate_until", "No response has a time"),
        ("cost", "generate_until", "its price is unknown"),
        ("calibration", "multiple_choice", "No document has log probabilities"),
        ("calibration", "generate_until", "is of type generate_until"),
    ],
)
def test_a_plot_without_data_says_why(name: str, output_type: str, why: str) -> None:
    plot = build_document_plot(name, measure_task(), output_type=output_type)
    assert plot.build is None and why in plot.missing


def test_a_task_without_scores_and_equal_lengths_say_why() -> None:
    unscored = measure_task(metrics=(), scores=np.empty((0, 4)), length=np.arange(4.0))
    assert "has a score" in build_document_plot("histogram", unscored).missing
    assert "both a response and a score" in build_document_plot("score_by_length", unscored).missing
    equal = build_document_plot("score_by_length", measure_task(length=np.full(4, 7.0)))
    assert "the same number of characters (7)" in equal.missing


def test_a_scatter_plot_is_a_sample_and_says_so() -> None:
    count = 5000
    found = measure_task(
        documents=np.arange(count), scores=np.ones((1, count)), length=np.arange(float(count))
    )
    plot = build_document_plot("score_by_length", found, max_points=300)
    assert plot.build is not None
    points = plot.build(LIGHT)["data"][0]
    assert len(points["x"]) == 300 and "a random sample of 300 documents" in plot.note
    assert sum(row[3] for row in plot.table.rows) == count
    assert "the same score, so there is no correlation" in plot.summary
