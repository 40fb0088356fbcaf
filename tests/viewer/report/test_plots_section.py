"""The plots of a report: of one run, and of several."""

from __future__ import annotations

import pytest
from tests.viewer.plots.plot_runs import make_plot_runs

from assay.store.runs.run import Run
from assay.viewer.report.content import Report, ReportOptions, build_report

Runs = tuple[Run, Run]


@pytest.fixture(scope="module")
def plot_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("plots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        return make_plot_runs(folder)


def list_titles(report: Report) -> dict[str, list[str]]:
    return {group.title: [plot.title for _, plot in group.plots] for group in report.plots}


def test_a_run_has_the_plots_of_its_tasks(plot_runs: Runs) -> None:
    report = build_report([plot_runs[0]], ReportOptions(documents=0))
    titles = list_titles(report)
    assert list(titles) == ["sums", "choices", "All tasks"]
    assert "Score by response length" in titles["sums"] and "Calibration" not in titles["sums"]
    assert "Calibration" in titles["choices"]
    assert any(note.startswith("Calibration: ") for note in report.plots[0].notes)
    assert ("plots", "Plots") in report.sections
    assert set(report.tables) <= set(report.figures)
    sums = report.tables[report.plots[0].plots[0][0]]
    assert sums["rows"] == ((0.0, 10, 0.25), (1.0, 30, 0.75))


def test_several_runs_are_plotted_against_each_other_and_over_time(plot_runs: Runs) -> None:
    first, second = plot_runs
    two = build_report([first, second], ReportOptions(documents=0))
    assert list_titles(two) == {
        "second-model against first-model": [
            "Scores of tasks",
            "Scores of the documents of sums",
            "Scores of the documents of choices",
        ]
    }
    three = build_report([first, second, first], ReportOptions(documents=0, labels=("a", "b", "c")))
    assert list_titles(three)["Over time"] == ["History of sums", "History of choices"]
