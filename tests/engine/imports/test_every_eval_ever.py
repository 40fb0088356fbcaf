"""Records of Every Eval Ever, written by its own converter, become runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.engine.imports.formats import detect_format
from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run

RECORDED = Path(__file__).parent / "recorded" / "every_eval_ever"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "copied"))


def change_record(folder: Path, **changes: Any) -> Path:
    (file,) = folder.rglob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return file


def test_folders_records_and_instances_are_detected() -> None:
    (record,), (samples,) = RECORDED.rglob("*.json"), RECORDED.rglob("*.jsonl")
    for path in (RECORDED, RECORDED / "data", record.parent, record, samples):
        found = detect_format(path)
        assert found is not None and found.name == "every-eval-ever", path


def test_scores_and_documents_are_read(tmp_path: Path) -> None:
    (stored,) = import_results(RECORDED, tmp_path)
    run = Run(stored.folder)
    assert (run.model, stored.program) == ("org/tiny", "every-eval-ever")
    numbers = {one.metric: (one.value, one.scored, one.higher_is_better) for one in run.estimates}
    assert numbers == {"acc": (0.5, 4, True), "acc_norm": (0.5, 4, True)}
    records = list(run.records("choices"))
    assert [record["document"] for record in records] == [0, 1, 2, 3]
    assert [record["verdicts"][0]["value"] for record in records] == [1.0, 0.0, 1.0, 0.0]
    first = records[0]
    assert first["fields"]["choices"] == ["no", "yes"] and first["target"] == "1"
    assert first["requests"][0]["prompt"] == "Question: Is 0 even?\nAnswer:"
    assert first["requests"][0]["response"] == "yes"
    run.close()


def test_a_record_without_instances_has_no_documents(copied: Path, tmp_path: Path) -> None:
    for file in copied.rglob("*.jsonl"):
        file.unlink()
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    assert run.tasks["choices"]["aggregates_only"] and not list(run.records("choices"))
    assert [one.value for one in run.estimates] == [0.5, 0.5]
    run.close()


def test_the_newest_record_of_a_task_is_used(copied: Path, tmp_path: Path) -> None:
    (file,) = copied.rglob("*.json")
    record = json.loads(file.read_text())
    for result in record["evaluation_results"]:
        result["score_details"]["score"] = 0.9
    newer = {**record, "retrieved_timestamp": "9999999999.5", "detailed_evaluation_results": None}
    (file.parent / "newer.json").write_text(json.dumps(newer))
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    assert [one.value for one in run.estimates] == [0.9, 0.9]
    run.close()


def test_a_guessed_direction_is_unknown(copied: Path, tmp_path: Path) -> None:
    (file,) = copied.rglob("*.json")
    results = json.loads(file.read_text())["evaluation_results"]
    results[0]["metric_config"]["additional_details"]["polarity"] = "unknown"
    change_record(copied, evaluation_results=results)
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    assert [one.higher_is_better for one in run.estimates] == [None, True]
    run.close()


def test_messages_of_agents_are_read(copied: Path, tmp_path: Path) -> None:
    (samples,) = copied.rglob("*.jsonl")
    row = json.loads(samples.read_text().splitlines()[0])
    call = {"id": "c1", "name": "add", "arguments": {"amount": 1}}
    row |= {
        "interaction_type": "agentic",
        "output": None,
        "messages": [
            {"turn_idx": 0, "role": "user", "content": "Add."},
            {"turn_idx": 1, "role": "assistant", "content": None, "tool_calls": [call]},
            {"turn_idx": 2, "role": "tool", "content": "1", "tool_call_id": ["c1"]},
            {"turn_idx": 3, "role": "assistant", "content": "It is 1.", "reasoning_trace": "easy"},
        ],
        "token_usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
    }
    samples.write_text(json.dumps(row) + "\n")
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    (record,) = run.records("choices")
    (request,) = record["requests"]
    assert (request["response"], request["reasoning"], request["input_tokens"]) == ("It is 1.", "easy", 9)
    assert [one["role"] for one in json.loads(request["prompt"])["messages"]] == ["user", "assistant", "tool"]
    run.close()


def test_errors_are_failed_documents(copied: Path, tmp_path: Path) -> None:
    (samples,) = copied.rglob("*.jsonl")
    row = json.loads(samples.read_text().splitlines()[0])
    row |= {"error": "timeout", "evaluation_result_id": None, "output": {"raw": [""]}}
    samples.write_text(json.dumps(row) + "\n")
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    (record,) = run.records("choices")
    assert (record["outcome"], record["why"], record["requests"][0]["response"]) == (
        "failed",
        "timeout",
        None,
    )
    run.close()


@pytest.mark.parametrize(
    "changes",
    [{"evaluation_results": 3}, {"evaluation_results": [{"metric_config": 3}]}, {"model_info": "x"}],
)
def test_malformed_records_are_errors(copied: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DatasetError):
        import_results(change_record(copied, **changes), tmp_path / "runs", "every-eval-ever")


def test_malformed_rows_are_errors_with_their_line(copied: Path, tmp_path: Path) -> None:
    (samples,) = copied.rglob("*.jsonl")
    samples.write_text('{"sample_id": "0", "input": 3}\n')
    with pytest.raises(DatasetError, match="unexpected format") as caught:
        import_results(copied, tmp_path / "runs")
    assert caught.value.where.endswith("_samples.jsonl:1")
