"""JUnit XML of documents and thresholds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.making import make_model, write_task
from tests.viewer.exports.conftest import HOSTILE, ROWS, export_text

import assay
from assay.core.errors import InvalidOption, UnknownName
from assay.viewer.exports.junit import describe_unmet_thresholds, parse_threshold, write_thresholds


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
