"""Exports: complete, in order, and escaped for each format."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import InvalidOption, OutputError, UnknownName
from assay.core.responses import Failure
from assay.viewer.exports import FORMATS, export
from assay.viewer.exports.junit import describe_unmet_thresholds, parse_threshold, write_thresholds

HOSTILE = [
    "=cmd|'/c calc'!A1",
    "</td><script>alert(1)</script>",
    ']]>&"<x/>',
    "\x1b[2J\x00\x07",
    "half \ud800",
    'line\r\nbreak, "quoted"',
    "-5",
]
ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(len(HOSTILE) + 2)]


def hostile(request: Any) -> Any:
    """Return a hostile text for each document, a failure, and at last a right answer."""
    if hasattr(request, "continuation"):
        from assay.core.responses import LogProbability

        return LogProbability(-1.0 if request.index == 1 else -2.0, True)
    if request.document < len(HOSTILE):
        return HOSTILE[request.document]
    if request.document == len(HOSTILE):
        return Failure(request_id="", kind="server error", message="503 <b>down</b>")
    return str(request.document + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("exports")
    tasks = [str(write_task(folder, "sums", ROWS)), str(write_choices(folder, rows=2))]
    return assay.run(model=make_model(hostile), tasks=tasks, no_cache=True, output_path=str(folder / "out"))


def export_text(run: Any, name: str, tasks: list[str] | None = None) -> str:
    stream = io.StringIO(newline="")
    export(run, name, tasks or [], None, stream)
    return stream.getvalue()


def test_jsonl_has_a_complete_line_per_document(run: Any) -> None:
    records = [json.loads(line) for line in export_text(run, "jsonl").splitlines()]
    assert [(record["task"], record["document"]) for record in records] == [
        *(("sums", number) for number in range(len(ROWS))),
        ("choices", 0),
        ("choices", 1),
    ]
    failed = records[len(HOSTILE)]
    assert (failed["outcome"], failed["requests"][0]["response"]) == ("failed", None)
    assert "503 <b>down</b>" in failed["why"]
    assert [record["requests"][0]["response"] for record in records[:4]] == HOSTILE[:4]
    last = records[len(ROWS) - 1]
    assert last["verdicts"] == [{"filter": "none", "metric": "exact_match", "kind": "score", "value": 1.0}]
    assert [request["continuation"] for request in records[-1]["requests"]] == [" no", " yes"]
    assert records[-1]["requests"][1]["logprob"] == -1.0


def test_csv_has_a_row_per_document_and_escapes_formulas(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(export_text(run, "csv"), newline="")))
    assert len(rows) == len(ROWS) + 2
    assert rows[0]["response"] == f"'{HOSTILE[0]}"
    assert rows[5]["response"] == HOSTILE[5]
    assert rows[6]["response"] == "-5", "a number is not a formula"
    assert (rows[len(HOSTILE)]["outcome"], rows[len(HOSTILE)]["exact_match"]) == ("failed", "")
    assert (rows[len(ROWS) - 1]["exact_match"], rows[-1]["exact_match"], rows[0]["acc"]) == ("1.0", "", "")
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row.values())


def test_parquet_has_the_same_rows_as_csv(run: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (file,) = export(run, "parquet", [], tmp_path / "deep" / "x.parquet")
    table = parquet.read_table(file).to_pylist()
    assert [(row["task"], row["document"]) for row in table][:2] == [("sums", 0), ("sums", 1)]
    assert table[0]["response"] == HOSTILE[0]
    assert (table[len(ROWS) - 1]["exact_match"], table[0]["acc"]) == (1.0, None)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.parquet"]


def test_junit_fails_wrong_documents_and_reports_unanswered_ones_as_errors(run: Any) -> None:
    root = ElementTree.fromstring(export_text(run, "junit"))
    sums, choices = root.findall("testsuite")
    assert sums.attrib == {"name": "sums", "tests": "9", "failures": "7", "errors": "1"}
    assert choices.attrib == {"name": "choices", "tests": "2", "failures": "1", "errors": "0"}
    cases = sums.findall("testcase")
    assert [len(case) for case in cases] == [1] * 8 + [0]
    error = cases[len(HOSTILE)].find("error")
    assert error is not None
    assert error.attrib["message"] == "not answered: server error: 503 <b>down</b>"
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert "<script>" in failure.text, "as text, not as an element"


def test_a_graded_metric_fails_no_document(tmp_path: Path) -> None:
    metrics = [{"metric": "bleu"}]
    path = write_task(tmp_path, "graded", ROWS[:3], metric_list=metrics)
    run = assay.run(model=make_model(lambda request: "x"), tasks=[str(path)], output_path=str(tmp_path))
    assert ElementTree.fromstring(export_text(run, "junit"))[0].attrib["failures"] == "0"
    run.close()


def test_thresholds_are_test_cases_and_decide_the_exit_code(run: Any) -> None:
    met, missed = parse_threshold("sums=0.1"), parse_threshold("choices:acc=0.9")
    stream = io.StringIO()
    write_thresholds(run, [met, missed], stream)
    root = ElementTree.fromstring(stream.getvalue())
    assert [len(case) for case in root.iter("testcase")] == [0, 1]
    (message,) = describe_unmet_thresholds(run, [met, missed])
    assert message.startswith("choices: acc is 0.5000")
    with pytest.raises(UnknownName, match="no score `sums:bleu`"):
        describe_unmet_thresholds(run, [parse_threshold("sums:bleu=1")])


@pytest.mark.parametrize("text", ["sums", "=0.5", "sums=much", "sums:acc"])
def test_invalid_thresholds_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="invalid threshold"):
        parse_threshold(text)


class _Tags(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_table_has_every_score_and_no_scripts(tmp_path: Path) -> None:
    path = write_task(tmp_path, "sums", ROWS[:2], task_alias="<script>alert(1)</script>")
    run = assay.run(model=make_model(), tasks=[str(path)], output_path=str(tmp_path))
    page = _Tags()
    page.feed(export_text(run, "html-table"))
    run.close()
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.texts
    assert {"1.0000", "± 0.0000", "exact_match"} <= set(page.texts)


def test_lm_eval_files_can_be_limited_to_some_tasks(run: Any, tmp_path: Path) -> None:
    results, samples = export(run, "lm-eval", ["sums"], tmp_path / "lm")
    assert samples.name.startswith("samples_sums_")
    assert len(samples.read_text().splitlines()) == len(ROWS) - 1, "unanswered documents have no line"
    assert "results" in json.loads(results.read_text())


def test_lmms_eval_files_have_its_names_and_keys(run: Any, tmp_path: Path) -> None:
    results, sums, choices = export(run, "lmms-eval", [], tmp_path / "lmms")
    date = results.name.removesuffix("_results.json")
    assert (len(date), results.parent.name) == (15, "scripted")
    assert [sums.name, choices.name] == [f"{date}_samples_sums.jsonl", f"{date}_samples_choices.jsonl"]
    document = json.loads(results.read_text())
    assert set(document["results"]["sums"]) == {"alias", "exact_match,none", "exact_match_stderr,none"}
    assert document["n-samples"]["sums"] == {"original": 9, "effective": 9}
    assert {"task_hashes", "start_time", "end_time", "model_name_sanitized", "usage"} <= set(document)
    row = json.loads(sums.read_text().splitlines()[-1])
    expected = ["doc_id", "target", "input", "filtered_resps", "token_counts", "doc_hash", "exact_match"]
    assert list(row) == expected, "a response that is the answer is not repeated"
    assert (row["doc_id"], row["target"], row["filtered_resps"]) == (8, "9", "9")
    chosen = json.loads(choices.read_text().splitlines()[0])
    assert chosen["resps"] == [[["-2.0", "True"]], [["-1.0", "True"]]]
    assert chosen["filtered_resps"] == [["-2.0", "True"], ["-1.0", "True"]]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_leaves_no_partial_files(run: Any, tmp_path: Path, name: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    for _ in range(2):
        files = export(run, name, ["choices"], tmp_path / "place")
        assert all(file.is_file() for file in files)
    assert not list(tmp_path.rglob("*.new"))


def test_unwritable_outputs_are_errors(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnknownName, match="unknown format `xlsx`"):
        export(run, "xlsx", [], None)
    with pytest.raises(UnknownName, match="the run has no task `other`"):
        export(run, "csv", ["other"], None)
    with pytest.raises(InvalidOption, match="needs an output path"):
        export(run, "lm-eval", [], None)
    with pytest.raises(OutputError, match="is a folder"):
        export(run, "csv", [], tmp_path)
    with pytest.raises(OutputError, match="is a file"):
        export(run, "lm-eval", [], tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write"):
        export(run, "csv", [], tmp_path / "file" / "x.csv")
