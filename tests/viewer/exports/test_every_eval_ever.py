"""Records of Every Eval Ever; `tests/flows/test_interchange.py` validates them with its own package."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import UserError
from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run
from assay.viewer.exports.every_eval_ever import build_instances, build_record
from assay.viewer.exports.formats import export


def read_record(folder: Path, task: str) -> dict[str, Any]:
    (file,) = folder.glob(f"data/{task}/*/*/*.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def read_rows(folder: Path, task: str) -> list[dict[str, Any]]:
    (file,) = folder.glob(f"data/{task}/*/*/*_samples.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def exported(rich_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    export(rich_run, "every-eval-ever", [], folder)
    return folder


def test_files_have_the_places_of_the_datastore(exported: Path, rich_run: Any, tmp_path: Path) -> None:
    pattern = re.compile(
        r"data/[^/]+/org/tiny/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(_samples\.jsonl|\.json)"
    )
    names = {str(file.relative_to(exported)) for file in exported.rglob("*") if file.is_file()}
    assert len(names) == 10 and all(pattern.fullmatch(name) for name in names)
    export(rich_run, "every-eval-ever", ["sums"], tmp_path)
    again = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert again < names, "the same run has the same names"


def test_a_record_names_its_instances_with_a_checksum(exported: Path) -> None:
    detailed = read_record(exported, "sums")["detailed_evaluation_results"]
    data = (exported / detailed["file_path"]).read_bytes()
    assert detailed["checksum"] == hashlib.sha256(data).hexdigest()
    assert detailed["total_rows"] == len(data.splitlines())


def test_scores_have_standard_error_and_interval(exported: Path) -> None:
    strict, flexible = read_record(exported, "sums")["evaluation_results"]
    assert [strict["evaluation_result_id"], flexible["evaluation_name"]] == [
        "exact_match:strict",
        "sums/flexible",
    ]
    uncertainty = read_record(exported, "choices")["evaluation_results"][0]["score_details"]["uncertainty"]
    assert uncertainty["standard_error"]["method"] == "analytic"
    assert uncertainty["confidence_interval"] | {"lower": 0, "upper": 0} == {
        "lower": 0,
        "upper": 0,
        "confidence_level": 0.95,
        "method": "wilson",
    }
    assert uncertainty["num_samples"] == 4


def test_failed_documents_have_a_row_with_their_error(exported: Path) -> None:
    (row,) = (one for one in read_rows(exported, "sums") if one["sample_id"] == "2")
    assert (row["error"], row["evaluation_result_id"]) == ("server error: 503 <b>down</b>", None)


def test_agents_have_messages_instead_of_an_output(exported: Path) -> None:
    row = read_rows(exported, "counter")[0]
    assert (row["interaction_type"], row["output"]) == ("agentic", None)
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"] == [{"id": "c0", "name": "add", "arguments": {"amount": 1}}]
    assert row["messages"][2]["tool_call_id"] == ["c0"]
    assert row["evaluation"] == {"score": 1.0, "is_correct": True, "num_turns": 2, "tool_calls_count": 1}


def test_usage_counts_all_requests_of_a_document(exported: Path) -> None:
    assert read_rows(exported, "sums")[0]["token_usage"] == {
        "input_tokens": 24,
        "output_tokens": 6,
        "total_tokens": 30,
        "input_tokens_cache_read": 4,
    }


def test_the_answer_to_choices_is_the_most_likely_one(exported: Path) -> None:
    row = read_rows(exported, "choices")[0]
    assert (row["input"]["choices"], row["output"]["raw"]) == (["no", "yes"], ["yes"])


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("org/model", "org/model"),
        ("gpt", "local/gpt"),
        ("/models/mine/", "local/mine"),
        ("./mine", "local/mine"),
        ("a/b/c", "a/b/c"),
    ],
)
def test_models_without_an_organisation_are_local(
    rich_run: Any, monkeypatch: pytest.MonkeyPatch, name: str, identity: str
) -> None:
    spec = {**rich_run.facts["spec"], "model_args": {"pretrained": name}}
    monkeypatch.setitem(rich_run.facts, "spec", spec)
    model = build_record(rich_run, "sums")["model_info"]
    assert (model["id"], model["name"]) == (identity, name)
    assert model["developer"] == identity.partition("/")[0]


def test_a_score_that_is_not_a_number_is_left_out(rich_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    changed = [replace(one, value=float("nan")) for one in rich_run.estimates]
    monkeypatch.setitem(rich_run.__dict__, "estimates", changed)
    assert build_record(rich_run, "sums")["evaluation_results"] == []


def test_a_run_without_scores_is_an_error(
    rich_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rich_run.__dict__, "estimates", [])
    with pytest.raises(UserError, match="no task has a score"):
        export(rich_run, "every-eval-ever", [], tmp_path)


def test_an_import_has_the_scores_and_documents_of_the_run(
    exported: Path, rich_run: Any, tmp_path: Path
) -> None:
    (stored,) = import_results(exported, tmp_path)
    back = Run(stored.folder)
    for task in rich_run.tasks:
        assert {one["metric"]: one["value"] for one in _list_scores(back, task)} == {
            one["metric"]: one["value"] for one in _list_scores(rich_run, task)
        }
        fields = [record["fields"] for record in rich_run.records(task)]
        assert [record["fields"] for record in back.records(task)] == fields
    back.close()


def _list_scores(run: Any, task: str) -> list[dict[str, Any]]:
    return [
        {"metric": (one.metric, one.pipeline), "value": one.value}
        for one in run.estimates
        if one.task == task
    ]


def test_rows_are_strict_json(rich_run: Any) -> None:
    record = build_record(rich_run, "sums")
    for row in build_instances(rich_run, "sums", record):
        json.dumps(row, allow_nan=False)
