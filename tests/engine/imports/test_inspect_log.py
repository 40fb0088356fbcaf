"""Logs that inspect_ai wrote (see `record_inspect_logs.py`) become runs."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay.core.errors import AssayError, DatasetError
from assay.engine.imports.formats import detect_format
from assay.engine.imports.importer import import_results
from assay.store.runs.media_files import find_media_file
from assay.store.runs.run import Run
from assay.viewer.documents.prompts import find_prompt_media
from assay.viewer.exports.formats import export

pytest.importorskip("zstandard")
RECORDED = Path(__file__).parent / "recorded"


def import_run(path: Path, folder: Path) -> Run:
    (stored,) = import_results(path, folder)
    return Run(stored.folder)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = import_run(RECORDED / "sums.eval", tmp_path_factory.mktemp("inspect"))
    yield run
    run.close()


@pytest.fixture(scope="module")
def documents(sums: Run) -> dict[str, dict[str, Any]]:
    return {record["fields"]["id"]: record for record in sums.records("sums")}


def test_the_format_of_logs_is_detected(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "letters.json", tmp_path)
    for path in (RECORDED / "sums.eval", RECORDED / "letters.json", tmp_path):
        found = detect_format(path)
        assert found is not None and found.name == "inspect"


def test_scores_have_the_standard_error_and_the_interval_of_epochs(sums: Run) -> None:
    numbers = {one.metric: (one.value, one.stderr, one.scored) for one in sums.estimates}
    assert numbers == {"match": (0.75, 0.25, 4), "includes": (0.75, 0.25, 4)}
    assert all(one.interval is not None for one in sums.estimates)
    assert sums.model == "mockllm/model" and sums.finished


def test_epochs_are_repeats(sums: Run, documents: dict[str, dict[str, Any]]) -> None:
    assert {request.get("repeat", 0) for request in documents["wrong"]["requests"]} == {0, 1}
    assert documents["wrong"]["repeats"][0]["scores"] == {"match": [0.0, 0.0], "includes": [0.0, 0.0]}
    (one, _) = sums.facts["repeats"]
    assert (one["task"], one["metric"], one["documents"], one["repeats"]) == ("sums", "match", 4, 2)


def test_samples_keep_the_order_of_the_dataset(documents: dict[str, dict[str, Any]]) -> None:
    assert list(documents) == ["tool", "reasoning", "wrong", "broken", "image"]
    assert [record["document"] for record in documents.values()] == [0, 1, 2, 3, 4]
    assert documents["wrong"]["target"] == ["8", "eight"]


def test_tool_calls_and_their_results_are_messages(documents: dict[str, dict[str, Any]]) -> None:
    first, second = (one for one in documents["tool"]["requests"] if not one.get("repeat"))
    (call,) = first["tool_calls"]
    assert (first["response"], call["name"], json.loads(call["arguments"])) == (
        "I call the tool.",
        "add",
        {"x": 2, "y": 2},
    )
    assert first["tools"]["tools"][0]["parameters"]["required"] == ["x", "y"]
    messages = json.loads(second["prompt"])["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[3]["content"] == [
        {"type": "tool_result", "call_id": call["id"], "name": "add", "content": "4"}
    ]
    assert second["response"] == "ANSWER: 4"


def test_usage_counts_cached_tokens_as_input(documents: dict[str, dict[str, Any]]) -> None:
    (request, _) = documents["wrong"]["requests"]
    assert [request[key] for key in ("input_tokens", "output_tokens", "cached_tokens", "cost_usd")] == [
        10,
        3,
        4,
        0.5,
    ]


def test_reasoning_and_the_reason_to_stop_are_kept(documents: dict[str, dict[str, Any]]) -> None:
    (request, _) = documents["reasoning"]["requests"]
    assert (request["reasoning"], request["response"], request["finish"]) == (
        "three and three",
        "ANSWER: 6",
        "stop",
    )


def test_a_sample_with_an_error_is_a_failed_document(sums: Run, documents: dict[str, dict[str, Any]]) -> None:
    assert (documents["broken"]["outcome"], documents["broken"]["why"]) == (
        "failed",
        "RuntimeError('cannot read <error>')",
    )
    assert documents["broken"]["verdicts"] == []
    assert sums.outcomes("sums") == {"failed": 1, "scored": 4}
    assert {(one.scored, one.unscored, one.failed) for one in sums.estimates} == {(4, 0, 1)}


def test_images_are_stored_with_the_run(sums: Run, documents: dict[str, dict[str, Any]]) -> None:
    ((_, digest),) = {
        (part.kind, part.digest) for part in find_prompt_media(documents["image"]["requests"][0]["prompt"])
    }
    file = find_media_file(sums.folder, digest)
    assert file is not None and file.read_bytes().startswith(b"\x89PNG")


def test_explanations_of_scorers_are_reasons(documents: dict[str, dict[str, Any]]) -> None:
    verdicts = {verdict["metric"]: verdict for verdict in documents["wrong"]["verdicts"]}
    assert (verdicts["match"]["value"], verdicts["match"]["why"]) == (0.0, "ANSWER: 7")


def test_json_logs_and_choices_are_read(tmp_path: Path) -> None:
    run = import_run(RECORDED / "letters.json", tmp_path)
    records = list(run.records("letters"))
    assert [record["fields"]["choices"] for record in records] == [["1", "2", "3"], ["1", "2"]]
    assert [record["verdicts"][0]["value"] for record in records] == [1.0, 0.0]
    assert "A) 1" in records[0]["requests"][0]["prompt"], "an attachment is replaced by its content"
    run.close()


@pytest.mark.parametrize(("name", "score"), [("sums.eval", "match"), ("letters.json", "choice")])
def test_logs_are_compared_by_their_main_score(tmp_path: Path, name: str, score: str) -> None:
    (stored,) = import_results(RECORDED / name, tmp_path)
    (row,) = api.compare(stored.folder, stored.folder).rows
    assert (row.metric, row.difference) == (score, 0.0)


def test_logs_in_folders_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "one" / "two"
    folder.mkdir(parents=True)
    shutil.copy(RECORDED / "sums.eval", folder)
    assert len(import_results(tmp_path / "logs", tmp_path / "runs")) == 1


def test_logs_of_one_folder_are_imported_together(tmp_path: Path) -> None:
    for name in ("sums.eval", "letters.json"):
        shutil.copy(RECORDED / name, tmp_path)
    stored = import_results(tmp_path, tmp_path / "runs")
    assert len(stored) == 2, "they have different runs"
    assert not any(one.new for one in import_results(tmp_path, tmp_path / "runs"))


def test_an_imported_log_is_exported_with_equal_scores(sums: Run, tmp_path: Path) -> None:
    (path,) = export(sums, "inspect-json", ["sums"], tmp_path / "back.json")
    log = json.loads(path.read_text())
    (match, includes) = log["results"]["scores"]
    assert {name: one["value"] for name, one in match["metrics"].items()} == {
        "accuracy": 0.75,
        "stderr": 0.25,
    }
    assert (match["reducer"], includes["name"], log["eval"]["config"]["epochs"]) == ("mean", "includes", 2)
    assert len(log["samples"]) == 10


def change_log(folder: Path, **changes: Any) -> Path:
    log = json.loads((RECORDED / "letters.json").read_text())
    path = folder / "changed.json"
    path.write_text(json.dumps({**log, **changes}))
    return path


@pytest.mark.parametrize(
    ("value", "score"),
    [("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), (True, 1.0), ("yes", 1.0), ("0.25", 0.25), (3, 3.0)],
)
def test_values_are_converted_as_in_inspect(tmp_path: Path, value: Any, score: float) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    for sample in log["samples"]:
        sample["scores"]["choice"]["value"] = value
    path = change_log(tmp_path, samples=log["samples"], reductions=[], results=None)
    run = import_run(path, tmp_path / "runs")
    assert [one["verdicts"][0]["value"] for one in run.records("letters")] == [score, score]
    assert [one.value for one in run.estimates] == [score]
    run.close()


def test_scores_that_are_dictionaries_are_several_metrics(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    for sample in log["samples"]:
        sample["scores"]["choice"]["value"] = {"style": 2, "truth": "C"}
    run = import_run(
        change_log(tmp_path, samples=log["samples"], reductions=[], results=None), tmp_path / "runs"
    )
    assert {one.metric: one.value for one in run.estimates} == {"choice.style": 2.0, "choice.truth": 1.0}
    run.close()


def test_missing_scores_are_unscored(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    log["samples"][0]["scores"]["choice"]["value"] = float("nan")
    run = import_run(
        change_log(tmp_path, samples=log["samples"], reductions=[], results=None), tmp_path / "runs"
    )
    kinds = [one["verdicts"][0]["kind"] for one in run.records("letters")]
    assert kinds == ["unscored", "score"]
    run.close()


def test_a_log_that_did_not_finish_says_so(tmp_path: Path) -> None:
    run = import_run(
        change_log(tmp_path, status="error", error={"message": "out of credit"}), tmp_path / "runs"
    )
    assert run.facts["import_notes"] == ["`letters`: the log has the status `error`: out of credit"]
    run.close()


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    for sample in log["samples"]:
        sample["scores"] = {"ch\ud800": sample["scores"]["choice"]}
    path = change_log(tmp_path, samples=log["samples"], reductions=[], results=None)
    run = import_run(path, tmp_path / "runs")
    assert [one.metric for one in run.estimates] == ["ch\ufffd"]
    run.close()


@pytest.mark.parametrize("model", ["../../..", ".hidden", "-o", "/"])
def test_run_folders_are_never_hidden(tmp_path: Path, model: str) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    run = import_run(change_log(tmp_path, eval={**log["eval"], "model": model}), tmp_path / "runs")
    run.close()
    assert run.folder.parent == tmp_path / "runs" and run.folder.name[0].isalnum()


SECRET_ARGUMENTS = {"api_key": "live-key-123456", "base_url": "https://user:pass-word-1@host/v1", "seed": 1}


def test_keys_in_a_log_are_not_stored(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    run = import_run(
        change_log(tmp_path, eval={**log["eval"], "model_args": SECRET_ARGUMENTS}), tmp_path / "runs"
    )
    run.close()
    stored = b"".join(file.read_bytes() for file in run.folder.iterdir() if file.is_file())
    assert b"live-key" not in stored and b"pass-word" not in stored
    assert run.facts["spec"]["model_args"]["seed"] == 1


@pytest.mark.parametrize("name", ["inspect-json", "lm-eval", "lmms-eval", "every-eval-ever"])
def test_keys_in_earlier_imports_are_not_exported(
    sums: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sums.facts["spec"], "model_args", SECRET_ARGUMENTS)
    written = "".join(file.read_text() for file in export(sums, name, [], tmp_path / "out"))
    assert "***" in written and "live-key" not in written and "pass-word" not in written


def test_calls_of_scorers_are_not_requests(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    scorer = next(event for event in log["samples"][0]["events"] if event.get("type") == "scorer")
    call = next(event for event in log["samples"][0]["events"] if event["event"] == "model")
    log["samples"][0]["events"] += [{**call, "span_id": scorer["id"]}, {**call, "role": "grader"}]
    run = import_run(change_log(tmp_path, samples=log["samples"]), tmp_path / "runs")
    assert len(next(run.records("letters"))["requests"]) == 1
    run.close()


def test_a_log_without_events_has_its_last_message(tmp_path: Path) -> None:
    log = json.loads((RECORDED / "letters.json").read_text())
    for sample in log["samples"]:
        sample |= {"events": [], "events_data": None}
    run = import_run(change_log(tmp_path, samples=log["samples"]), tmp_path / "runs")
    (request,) = next(run.records("letters"))["requests"]
    assert request["response"] == "ANSWER: B" and request["input_tokens"] == 10
    run.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": [{"epoch": 1}]},
        {"samples": 3},
        {"samples": [3]},
        {"eval": {"task": "x"}, "samples": [{"id": 1, "input": 3, "scores": {"a": 3}}]},
    ],
)
def test_malformed_logs_are_errors_without_a_traceback(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = change_log(tmp_path, **changes)
    with pytest.raises(DatasetError, match="unexpected format"):
        import_results(path, tmp_path / "runs", "inspect")
    assert not list((tmp_path / "runs").glob("*"))


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += list_paths(item, (*path, key))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_logs_with_other_values_are_imported_or_named_as_malformed(tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    log = json.loads((RECORDED / "letters.json").read_text())
    for path in chooser.sample(list_paths(log), 6):
        place = log
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = chooser.choice([None, 3, "x", [], {}, [3], {"a": 1}, float("nan"), "1e400"])
        except (KeyError, IndexError, TypeError):
            continue  # inside a value that was replaced
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(log))
    with suppress(AssayError):
        import_results(changed, tmp_path / "runs", "inspect")
    assert not list((tmp_path / "runs").glob(".*")), "no partial run"


def test_an_epoch_that_failed_is_exported_with_its_error(tmp_path: Path) -> None:
    """The document has the score of its other epoch; the failed epoch has none, as in inspect_ai."""
    log = json.loads((RECORDED / "letters.json").read_text("utf-8"))
    log["eval"]["config"]["epochs"] = 2
    error = {"message": "out of quota", "traceback": "out of quota", "traceback_ansi": "out of quota"}
    failed = [
        {key: value for key, value in one.items() if key not in ("scores", "output", "events")}
        | {"epoch": 2, "uuid": f"second-{one['id']}", "error": error, "messages": one["messages"][:1]}
        for one in log["samples"]
    ]
    log["samples"] += failed
    (tmp_path / "log.json").write_text(json.dumps(log), "utf-8")
    run = import_run(tmp_path / "log.json", tmp_path / "runs")
    export(run, "inspect-json", [], tmp_path / "back.json")
    run.close()
    found = json.loads((tmp_path / "back.json").read_text("utf-8"))["samples"]
    assert [(one["epoch"], one.get("error", {}).get("message"), bool(one["scores"])) for one in found] == [
        (1, None, True),
        (2, "out of quota", False),
    ] * 2
