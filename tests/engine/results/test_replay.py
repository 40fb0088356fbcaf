"""`replay`: answers that were given before, found by the exact request or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import answer_correctly, make_model, write_choices, write_task, write_texts

import assay
from assay.core.errors import DatasetError, InvalidOption, UnknownName
from assay.core.records.responses import Failure
from assay.engine.results.replay import ReplayModel


def tasks(folder: Path) -> list[str]:
    return [str(write(folder)) for write in (write_task, write_choices, write_texts)]


def ask(run: Path, **options: Any) -> assay.Run:
    return assay.run(model="replay", model_args={"run": str(run)}, **options)


def read_reasons(run: assay.Run) -> set[str]:
    return {why for (why,) in run.journal.query("SELECT DISTINCT why FROM outcomes WHERE outcome = 'failed'")}


# --- a stored run --------------------------------------------------------------------------------------


def test_a_run_is_replayed_without_its_model(workspace: Path) -> None:
    first = assay.run(model=make_model(None), tasks=tasks(workspace))
    again = ask(first.folder, tasks=tasks(workspace))
    assert again.results == first.results
    assert again.id != first.id
    assert again.model == "replay"


def test_a_run_is_found_by_the_prefix_of_its_id(workspace: Path) -> None:
    path = str(write_task(workspace))
    first = assay.run(model=make_model(), tasks=[path])
    again = assay.run(model="replay", model_args={"run": first.id[:-3]}, tasks=[path])
    assert again.results == first.results


def test_a_request_that_is_not_in_the_run_fails_with_a_reason(workspace: Path) -> None:
    path = str(write_task(workspace))
    first = assay.run(model=make_model(), tasks=[path], limit=4)
    again = ask(first.folder, tasks=[path])
    assert again.journal.count_outcomes("sums") == {"scored": 4, "failed": 2}
    (why,) = read_reasons(again)
    assert "not found" in why and first.id in why and "has no response to this request" in why


def test_a_changed_prompt_is_not_found(workspace: Path) -> None:
    first = assay.run(model=make_model(), tasks=[str(write_task(workspace))])
    changed = str(write_task(workspace, doc_to_text="{{question}} "))
    assert ask(first.folder, tasks=[changed]).journal.count_outcomes("sums") == {"failed": 6}


def test_a_failed_request_is_not_replayed(workspace: Path) -> None:
    path = str(write_task(workspace))

    def answer(request: Any) -> Any:
        if request.document == 3:
            return Failure(request_id="", kind="timeout", message="too slow")
        return answer_correctly(request)

    first = assay.run(model=make_model(answer), tasks=[path], max_failures=1)
    assert ask(first.folder, tasks=[path]).journal.count_outcomes("sums") == {"scored": 5, "failed": 1}


def test_a_new_metric_applies_to_stored_answers(workspace: Path) -> None:
    first = assay.run(model=make_model(lambda request: "1 "), tasks=[str(write_task(workspace))])
    steps = [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}]
    changed = str(write_task(workspace, filter_list=[{"name": "number", "filter": steps}]))
    assert first.results["sums"]["exact_match,none"] == 0.0
    assert ask(first.folder, tasks=[changed]).results["sums"]["exact_match,number"] == pytest.approx(1 / 6)


def test_repeats_are_replayed_individually(workspace: Path) -> None:
    keys: dict[str, Any] = {"repeats": 3, "generation_kwargs": {"do_sample": True}}
    path = str(write_task(workspace, **keys))
    first = assay.run(model=make_model(lambda request: f"number {request.repeat}"), tasks=[path])
    again = ask(first.folder, tasks=[path])
    assert next(iter(again.samples("sums")))["resps"] == [["number 0", "number 1", "number 2"]]


def test_replay_uses_the_prompts_of_the_original_model(workspace: Path) -> None:
    first = assay.run(model="dummy", tasks=[str(write_task(workspace))])
    model = ReplayModel(run=first.folder)
    assert model.prompted_as == "dummy"
    assert "video" in model.traits.abilities


@pytest.mark.parametrize("arguments", [{}, {"run": "latest", "file": "samples.jsonl"}])
def test_replay_needs_exactly_one_source(arguments: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="either a run or a file"):
        ReplayModel(**arguments)


def test_a_missing_run_is_an_error_before_the_first_request(workspace: Path) -> None:
    with pytest.raises(UnknownName, match="no runs"):
        assay.run(model="replay", model_args={"run": "nothing"}, tasks=[str(write_task(workspace))])


# --- samples files -------------------------------------------------------------------------------------


def read_rows(folder: Path, task: str) -> tuple[Path, list[dict[str, Any]]]:
    (path,) = folder.glob(f"**/samples_{task}_*.jsonl")
    return path, [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def replay_file(path: Path, names: list[str], **options: Any) -> assay.Run:
    return assay.run(model="replay", model_args={"file": str(path)}, tasks=names, **options)


def test_lm_eval_samples_are_replayed_exactly(workspace: Path) -> None:
    names = tasks(workspace)
    first = assay.run(model=make_model(None), tasks=names, output_path="out")
    again = replay_file(workspace / "out", names)
    assert again.results == first.results


def test_chats_are_found_in_the_format_of_lm_eval(workspace: Path) -> None:
    row = {
        "doc_id": 0,
        "arguments": {
            "gen_args_0": {
                "arg_0": '[{"role": "user", "content": "Question: What is 0 + 1?\\nAnswer:", "type": "text"}]',
                "arg_1": {"until": ["\n\n"], "do_sample": False},
            }
        },
        "resps": [["1"]],
        "filtered_resps": ["1"],
    }
    path = workspace / "samples_sums_2026.jsonl"
    path.write_text(json.dumps(row) + "\n")
    keys: dict[str, Any] = {"generation_kwargs": {"until": ["\n\n"], "do_sample": False}}
    task = str(write_task(workspace, **keys))
    run = replay_file(path, [task], limit=1, apply_chat_template=True)
    assert run.results["sums"]["exact_match,none"] == 1.0


def test_different_settings_are_reported(workspace: Path) -> None:
    assay.run(model=make_model(), tasks=[str(write_task(workspace))], output_path="out")
    task = str(write_task(workspace, generation_kwargs={"until": ["x"], "max_gen_toks": 3}))
    run = replay_file(workspace / "out", [task])
    (why,) = read_reasons(run)
    assert "other generation settings for this prompt" in why and '"max_gen_toks": 3' in why


def test_different_choices_are_not_found(workspace: Path) -> None:
    assay.run(model=make_model(None), tasks=[str(write_choices(workspace))], output_path="out")
    task = str(write_choices(workspace, doc_to_choice='["nope", "yes"]'))
    assert replay_file(workspace / "out", [task]).journal.count_outcomes("choices") == {"failed": 4}


def test_identical_prompts_of_several_documents_get_their_own_answers(workspace: Path) -> None:
    rows = [{"question": "Same?", "answer": "a"}, {"question": "Same?", "answer": "b"}]
    task = str(write_task(workspace, rows=rows))
    assay.run(model=make_model(lambda request: "a"), tasks=[task], output_path="out")
    path, kept = read_rows(workspace / "out", "sums")
    kept[1]["resps"] = [["b"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    found = [next(iter(row["resps"][0])) for row in replay_file(path, [task]).samples("sums")]
    assert found[0] == "a"
    kept[0]["doc_id"], kept[1]["doc_id"] = 7, 8
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    (why,) = read_reasons(replay_file(path, [task]))
    assert "different responses" in why


LMMS = {"doc_id": 0, "target": "1", "input": "Question: What is 0 + 1?\nAnswer:", "filtered_resps": "1"}


def lmms_file(workspace: Path, row: dict[str, Any]) -> Path:
    path = workspace / "20260101_120000_samples_sums.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_lmms_eval_samples_are_found_by_document_and_prompt(workspace: Path) -> None:
    task = str(write_task(workspace))
    run = replay_file(lmms_file(workspace, LMMS), [task])
    assert run.journal.count_outcomes("sums") == {"scored": 1, "failed": 5}
    run = replay_file(lmms_file(workspace, {**LMMS, "input": "Something else"}), [task], limit=1)
    assert "has another prompt" in next(iter(read_reasons(run)))


def test_choices_of_lmms_eval_are_not_guessed(workspace: Path) -> None:
    row = {
        **LMMS,
        "resps": [[[-1.0, True]], [[-2.0, False]]],
        "filtered_resps": [[-1.0, True], [-2.0, False]],
    }
    path = lmms_file(workspace, row)
    path = path.rename(path.with_name("20260101_120000_samples_choices.jsonl"))
    run = replay_file(path, [str(write_choices(workspace))], limit=1)
    assert "do not contain the choices" in next(iter(read_reasons(run)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json\n", "not JSON lines"),
        ("[1]\n", "not a JSON object"),
        ('{"doc_id": 0}\n', "not a row of a samples file"),
        ('{"doc_id": 0, "arguments": {"a": 1}, "resps": []}\n', "not a row of a samples file"),
    ],
)
def test_an_invalid_samples_file_is_an_error_with_its_line(
    workspace: Path, content: str, message: str
) -> None:
    path = workspace / "samples_x.jsonl"
    path.write_text(content)
    with pytest.raises(DatasetError, match=message):
        replay_file(path, [str(write_task(workspace))])


def test_a_folder_without_samples_is_an_error(workspace: Path) -> None:
    with pytest.raises(DatasetError, match="no samples file"):
        replay_file(workspace, [str(write_task(workspace))])
