"""Every cause of a difference is found, and the contributions add up to the difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.making import answer_correctly, make_model, write_task

import assay
from assay.core.errors import UnknownName, UserError
from assay.core.records.responses import Failure, Response, Usage
from assay.testing import ScriptedModel
from assay.viewer.analysis.explanation import Explanation, explain_difference
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(20)]
Runs = Callable[..., Any]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return a function that runs the sums in a new folder: `runs(answers, keys, **options)`."""

    def run(answers: Any = answer_correctly, rows: Any = ROWS, keys: Any = None, **options: Any) -> Any:
        number = len(list(tmp_path.iterdir()))
        task = write_task(tmp_path / f"task-{number}", "sums", rows, **(keys or {}))
        place = str(tmp_path / f"out-{number}")
        model = make_model(answers)
        return assay.run(
            model=model, tasks=[str(task)], no_cache=True, output_path=place, max_failures=1.0, **options
        )

    return run


def explain(first: Any, second: Any) -> Explanation:
    (found,) = explain_difference(open_source(first), open_source(second))
    assert sum(cause.gap for cause in found.causes) == pytest.approx(found.gap)
    return found


def causes(first: Any, second: Any) -> dict[str, int]:
    return {cause.name: cause.documents for cause in explain(first, second).causes}


def wrong_below(count: int) -> Callable[[Any], str]:
    return lambda request: "?" if request.document < count else answer_correctly(request)


def test_different_responses_to_equal_prompts_are_due_to_the_model(runs: Runs) -> None:
    found = explain(runs(), runs(wrong_below(5)))
    assert [(cause.name, cause.documents) for cause in found.causes] == [("model", 5)]
    assert found.causes[0].gap == pytest.approx(-0.25)
    assert (found.causes[0].examples[0].first, found.causes[0].examples[0].second) == ("1", "?")
    assert found.same_model


def test_different_prompts_are_found_and_excerpted(runs: Runs) -> None:
    found = explain(runs(), runs(wrong_below(3), keys={"doc_to_text": "Question: {{question}}\nReply:"}))
    assert {cause.name for cause in found.causes} == {"prompt"}
    example = found.causes[0].examples[0]
    assert example.first.endswith("Answer:") and example.second.endswith("Reply:")


def test_fewshot_examples_are_distinguished_from_other_prompt_changes(runs: Runs) -> None:
    assert causes(runs(), runs(lambda request: "?", num_fewshot=1)) == {"few-shot": 20}


def test_different_settings_are_found(runs: Runs) -> None:
    assert causes(runs(), runs(wrong_below(4), gen_kwargs={"temperature": 0.7})) == {"settings": 4}


def test_a_truncated_response_is_found(runs: Runs) -> None:
    def cut(request: Any) -> Any:
        if request.document < 2:
            return Response(request_id=request.id, value="let me think", finish="length")
        return answer_correctly(request)

    assert causes(runs(), runs(cut)) == {"truncated": 2}


def test_different_token_counts_of_equal_prompts_are_found(runs: Runs) -> None:
    def counted(wrong: int, tokens: int) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            text = "?" if request.document < wrong else answer_correctly(request)
            return Response(request_id=request.id, value=text, usage=Usage(tokens, 1))

        return answer

    assert causes(runs(counted(0, 10)), runs(counted(2, 11))) == {"tokens": 2}


def test_extraction_and_metric_are_distinguished_from_the_model(runs: Runs) -> None:
    def wordy(request: Any) -> str:
        return f"It is {answer_correctly(request)}."

    number = {"filter_list": [{"name": "none", "filter": [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}]}]}  # fmt: skip
    assert causes(runs(wordy), runs(wordy, keys=number)) == {"extraction": 20}
    strict = {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["\\D"]}]}
    found = explain(runs(wordy), runs(wordy, keys=strict))
    assert [(cause.name, cause.documents) for cause in found.causes] == [("changed metric", 20)]
    assert "regexes_to_ignore" in found.causes[0].detail
    example = found.causes[0].examples[0]
    assert "regexes_to_ignore" in example.second and "regexes_to_ignore" not in example.first


def test_different_documents_and_targets_are_found(runs: Runs) -> None:
    fewer = explain(runs(wrong_below(5)), runs(lambda request: answer_correctly(request), rows=ROWS[5:]))
    assert [(cause.name, cause.documents) for cause in fewer.causes] == [("documents", 5)]
    assert fewer.gap == pytest.approx(0.25)
    moved = [{**row, "answer": "7", "note": "x"} for row in ROWS]
    assert causes(runs(), runs(rows=moved)) == {"documents": 40}


def pick_word(word: str, request: Any) -> str:
    return word


class Loaded(ScriptedModel):
    """A scripted model with a dtype, a revision and a quantisation."""

    def __init__(self, answers: Any, **identity: str) -> None:
        super().__init__(answers)
        self._identity = identity

    async def identify(self) -> dict[str, str]:
        return {"name": self.name, **self._identity}


@pytest.mark.parametrize(
    ("key", "values", "cause"),
    [
        ("dtype", ("float32", "bfloat16"), "dtype"),
        ("commit", ("aaa", "bbb"), "revision"),
        ("load_in_4bit", ("False", "True"), "quantisation"),
    ],
)
def test_dtype_revision_and_quantisation_are_causes(
    tmp_path: Path, key: str, values: tuple[str, str], cause: str
) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    first, second = (
        assay.run(
            model=Loaded(answers, **{key: value}),
            tasks=[str(task)],
            no_cache=True,
            output_path=str(tmp_path / value),
        )
        for answers, value in zip((answer_correctly, wrong_below(3)), values, strict=True)
    )
    found = explain(first, second)
    assert [(one.name, one.documents) for one in found.causes] == [(cause, 3)]
    assert " and " in found.causes[0].detail


def test_another_fewshot_seed_is_a_cause(runs: Runs) -> None:
    first = runs(num_fewshot=2, seed=[0, 1, 2, 3])
    second = runs(wrong_below(20), num_fewshot=2, seed=[0, 1, 2, 4])
    found = explain(first, second)
    assert [(one.name, one.detail) for one in found.causes][-1] == ("few-shot seed", "3 and 4")


def test_another_judge_is_a_cause(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "correct", "judge": {"kind": "binary"}}]}
    strict, kind = (make_model(partial(pick_word, word), name=word) for word in ("incorrect", "correct"))
    found = explain(runs(keys=keys, judge=[strict]), runs(keys=keys, judge=[kind]))
    assert [(one.name, one.documents) for one in found.causes] == [("judge", 20)]
    example = found.causes[0].examples[0]
    assert "incorrect" in example.first and "incorrect" not in example.second


def test_long_texts_are_shown_where_they_differ(runs: Runs) -> None:
    def long(ending: str) -> Callable[[Any], str]:
        return lambda request: "x" * 300 + ending + ("" if ending == "?" else answer_correctly(request))

    keys = {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["x"]}]}
    (cause,) = explain(runs(long(""), keys=keys), runs(long("?"), keys=keys)).causes
    example = cause.examples[0]
    assert example.first.endswith("x1") and example.second.endswith("x?")
    assert example.first.startswith("…") and len(example.first) < 60


def test_documents_without_a_response_are_found(runs: Runs) -> None:
    def failing(request: Any) -> Any:
        if request.document < 5:
            return Failure(request_id="", kind="server error", message="down")
        return answer_correctly(request)

    assert causes(runs(wrong_below(5)), runs(failing)) == {"no answer": 5}


def test_equal_runs_have_no_causes(runs: Runs) -> None:
    assert causes(runs(), runs()) == {}


def test_runs_with_nothing_in_common_are_an_error(runs: Runs) -> None:
    run = open_source(runs())
    with pytest.raises(UserError, match="no task"):
        explain_difference(run, run, ["other"])


@pytest.mark.parametrize(
    ("options", "said", "available"),
    [
        ({"metric": "nope"}, "no task of both runs has the metric `nope`", "exact_match"),
        ({"tasks": ["sums", "nope"]}, "no task of both runs is called `nope`", "sums"),
    ],
    ids=["metric", "task"],
)
def test_an_unknown_name_is_reported_with_those_that_the_runs_share(
    runs: Runs, options: dict[str, Any], said: str, available: str
) -> None:
    run = open_source(runs())
    with pytest.raises(UnknownName, match=said) as caught:
        explain_difference(run, run, **options)
    assert caught.value.hint == f"available: {available}"
    assert caught.value.exit_code == 2
