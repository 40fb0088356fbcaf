"""A run in a notebook: tables, data frames and charts; model output is escaped."""

from __future__ import annotations

import io
import resource
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import InvalidOption, MissingPackage, UnknownName
from assay.store.filters.syntax import FilterError
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.viewer.notebook import ResultsText, build_plot

HOSTILE = ["</td><script>alert(1)</script>", "half \ud800", "3"]
ROWS = [
    {"question": f"What is {n} + 1?", "answer": str(n + 1), "level": "a" if n % 2 else "b"} for n in range(12)
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("notebook")
    task = write_task(folder, "sums", ROWS, task_alias="<img src=x onerror=alert(1)>")
    model = make_model(lambda request: HOSTILE[request.document % 3], name="<b>model</b>")
    return assay.run(model=model, tasks=[str(task)], no_cache=True, output_path=str(folder / "out"))


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


def elements(page: str) -> set[str]:
    parser = Elements()
    parser.feed(page)
    return parser.seen


def test_a_run_has_an_html_representation(run: Any) -> None:
    page = run._repr_html_()
    assert elements(page) == {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "small"} - (
        set() if "<small>" in page else {"small"}
    )
    assert "&lt;img src=x" in page
    assert "&lt;b&gt;model&lt;/b&gt;" in page


def test_the_table_is_text_with_an_html_representation(run: Any) -> None:
    table = run.table()
    assert isinstance(table, ResultsText)
    assert "exact_match" in str(table)
    assert "<table" in table._repr_html_()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_documents_and_results_are_data_frames(run: Any, library: str) -> None:
    pytest.importorskip(library)
    documents, table = run.documents(frame=library), run.table(library)
    assert type(documents).__module__.partition(".")[0] == library
    assert documents.shape[0] == 12
    assert list(documents["document"]) == list(range(12))
    first, second, *_ = documents["response"]
    assert first == HOSTILE[0]
    assert second.startswith("half ")
    assert float(documents["exact_match"].sum()) == 1.0
    assert list(table["metric"]) == ["exact_match"]
    assert float(table["value"][0]) == pytest.approx(1 / 12)


def test_documents_of_one_task_are_a_data_frame_too(run: Any) -> None:
    pytest.importorskip("pandas")
    assert run.documents("sums").equals(run.documents())
    assert [row["doc_id"] for row in run.samples("sums")] == list(range(12))


def test_runs_plans_and_comparisons_are_short_and_escaped(run: Any, workspace: Path) -> None:
    assert repr(run).startswith("Run(") and "exact_match" in repr(run) and "\n" not in repr(run)
    planned = assay.plan(tasks=["quickstart_addition"], limit=3)
    assert repr(planned).startswith("Plan(embedded on quickstart_addition: 3 documents, run '")
    assert "<td>quickstart_addition</td><td>3</td>" in planned._repr_html_()
    first = assay.run(tasks=["quickstart_addition"], limit=3)
    second = assay.run(tasks=["quickstart_addition"], limit=3, model=lambda prompt: "<b>0</b>")
    found = assay.compare(first, second)
    assert repr(found).startswith(
        "Comparison(function against embedded: quickstart_addition exact_match -1 ("
    )
    assert (
        "<td>quickstart_addition</td><td>exact_match</td><td>1.0000</td><td>0.0000</td>"
        in found._repr_html_()
    )


def test_unknown_names_are_errors(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="no task `other`"):
        run.documents("other")
    with pytest.raises(InvalidOption, match="unsupported data frame library `excel`"):
        run.documents(frame="excel")
    with pytest.raises(UnknownName, match="unknown chart `cake`"):
        run.plot("cake")
    with pytest.raises(InvalidOption, match="unknown theme"):
        run.plot(theme="pink")
    monkeypatch.setattr("assay.viewer.notebook.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="needs the package `pandas`"):
        run.documents()


@pytest.mark.parametrize(
    "chart",
    [
        *("scores", "outcomes", "throughput", "categories", "spread"),
        *("histogram", "score_by_length", "history"),
    ],
)
def test_a_chart_is_a_plotly_figure(run: Any, chart: str) -> None:
    graphs = pytest.importorskip("plotly.graph_objects")
    figure = run.plot(chart, theme="dark")
    assert isinstance(figure, graphs.Figure)
    assert len(figure.data) >= 1


def test_a_rich_console_in_a_notebook_keeps_the_text(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import rich.console

    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    assert "exact_match" in str(run.table())


def test_ipython_renders_a_run(run: Any) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(run)
    assert "<table" in shown["text/html"]
    assert io.StringIO(shown["text/plain"]).read()


def test_an_unfinished_run_has_an_html_representation(tmp_path: Path) -> None:
    from assay.store.journal.journal import Journal

    journal = Journal.open_for_writing(tmp_path)
    journal.set_facts({"model": "m", "tasks": {}, "groups": {}, "top": []}).result()
    journal.close()
    assert "unfinished" in assay.Run(tmp_path)._repr_html_()


def test_documents_are_selected_by_a_filter_expression(run: Any) -> None:
    pytest.importorskip("pandas")
    rows = run.documents("sums", where="level=a and not right")
    assert list(rows["document"]) == [1, 3, 5, 7, 9, 11]
    frame = run.documents(where="right or document=4", frame="pandas")
    assert list(frame["document"]) == [2, 4]
    with pytest.raises(FilterError, match="unknown name `levl`") as caught:
        run.documents(where="levl=a")
    assert caught.value.where.startswith("where, column 1")


def test_two_runs_are_plotted_and_their_numbers_are_a_data_frame(run: Any) -> None:
    pytest.importorskip("plotly.graph_objects")
    pytest.importorskip("pandas")
    assert len(run.plot("scatter", other=run).data) == 2
    assert len(run.plot("task_scatter", other=str(run.folder)).data) == 2
    table = run.plot_table("scatter", other=run, frame="pandas")
    assert list(table["documents"]) == [11, 1] and list(table["first"]) == [0.0, 1.0]
    lengths = run.plot_table("score_by_length", frame="pandas")
    assert int(lengths["documents"].sum()) == 12
    assert list(run.plot_table("history", metric="exact_match")["exact_match"]) == [pytest.approx(1 / 12)]


def test_the_history_reads_more_runs_than_files_can_be_open(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    copies = 40
    for number in range(copies):
        shutil.copytree(run.folder, tmp_path / f"run-{number}")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / JOURNAL_FILE).write_bytes(b"no journal" * 1000)
    first = Run(tmp_path / "run-0")
    build_plot(first, "history")  # imports
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        plot = build_plot(first, "history")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        first.close()
    assert len(plot.table.rows) == copies
    assert plot.note == "1 damaged run is left out."


def test_a_chart_without_data_says_why(run: Any) -> None:
    with pytest.raises(InvalidOption, match="no data for the chart `calibration`") as caught:
        run.plot("calibration")
    assert "only tasks of type multiple_choice" in caught.value.hint
    with pytest.raises(InvalidOption, match="needs a second run"):
        run.plot("scatter")
    with pytest.raises(UnknownName, match="has no metric `f1`"):
        run.plot("histogram", metric="f1")
    with pytest.raises(UnknownName, match="unknown chart `outcomes`"):
        run.plot_table("outcomes")
    with pytest.raises(UnknownName, match="no task `other`"):
        run.plot("latency", task="other")
