"""The shipped real questions: complete, within their limits, and right where the answer is right."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import FOLDER

import assay

DATA = FOLDER / "firststeps" / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("firststeps_utils", FOLDER / "firststeps" / "utils.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "count"), [("arc_easy", 40), ("gsm8k", 40), ("ifeval", 30)])
def test_the_documents_are_all_there_and_all_different(name: str, count: int) -> None:
    texts = {json.dumps(row) for row in rows(name)}
    assert len(texts) == count


def test_the_right_answers_get_full_marks_and_guesses_do_not(workspace: Path) -> None:
    tasks = ["firststeps_arc_easy", "firststeps_gsm8k"]
    right = assay.run(model="oracle", tasks=tasks).results
    assert right["firststeps_arc_easy"]["acc,none"] == right["firststeps_arc_easy"]["acc_norm,none"] == 1.0
    assert right["firststeps_gsm8k"]["exact_match,last-number"] == 1.0
    guessed = assay.run(model="dummy", tasks=tasks).results
    assert guessed["firststeps_arc_easy"]["acc,none"] < 0.6
    assert guessed["firststeps_gsm8k"]["exact_match,last-number"] == 0.0


@pytest.mark.parametrize(
    "response", ["The answer is {}.", "**{}**", "{}.00", "First 3, then ${}", "Altogether {} dollars."]
)
def test_the_last_number_is_the_answer_however_it_is_written(workspace: Path, response: str) -> None:
    number = rows("gsm8k")[0]["answer"].split("#### ")[-1]
    run = assay.run(
        model="dummy", model_args={"text": response.format(number)}, tasks=["firststeps_gsm8k"], limit=1
    )
    assert run.results["firststeps_gsm8k"]["exact_match,last-number"] == 1.0


def test_every_instruction_has_a_check_that_takes_its_arguments(checks: ModuleType) -> None:
    for row in rows("ifeval"):
        for kind, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            assert checks.CHECKS[kind]("Some response.", **arguments) in (True, False)


FOLLOWED = [
    ("punctuation:no_comma", {}, "no comma here", "a comma, here"),
    ("change_case:english_lowercase", {}, "all small", "Not all small"),
    ("change_case:english_capital", {}, "ALL LARGE", "ALL larGE"),
    ("keywords:existence", {"keywords": ["sea"]}, "The Sea.", "The lake."),
    ("keywords:forbidden_words", {"forbidden_words": ["sea"]}, "Seals.", "The sea."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "at least"}, "Sea, sea.", "Sea."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "less than"}, "Sea.", "Sea, sea."),
    ("startend:quotation", {}, '"All."', '"Not" all.'),
    ("startend:end_checker", {"end_phrase": "The end."}, "So it was. The END.", "The end. Really."),
    ("detectable_format:title", {}, "<<Title>>\nText", "Title\nText"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b", "* a\n* b\n* c"),
    ("detectable_format:json_format", {}, '```\n{"a": 1}\n```', 'Sure: {"a": 1}'),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP.P.S. Hi", "Bye\nP.S. Hi"),
]


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), FOLLOWED)
def test_a_response_that_follows_is_told_from_one_that_does_not(
    checks: ModuleType, kind: str, arguments: dict[str, Any], good: str, bad: str
) -> None:
    document = {"instruction_id_list": [kind], "kwargs": [arguments]}
    for response, value in ((good, 1.0), (bad, 0.0), ("", 0.0)):
        found = checks.process_results(document, [response])
        assert found == {"prompt_acc": value, "instruction_acc": value}


def test_half_of_the_instructions_is_half_a_mark(checks: ModuleType) -> None:
    document = {
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {"num_words": None}],
    }
    assert checks.process_results(document, ["plain"]) == {"prompt_acc": 0.0, "instruction_acc": 0.5}
