"""Tests of `--token_logprobs`: it stores tokens, and answers without tokens do not satisfy it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.making import answer_correctly, make_model, plan_run, write_choices, write_task

import assay
from assay.api import score
from assay.core.records.responses import LogProbability, Response, Tokens
from assay.testing import ScriptedModel
from assay.viewer.exports.formats import export


class TokenModel(ScriptedModel):
    """Tells its tokens when asked to."""

    telling = False

    def __init__(self) -> None:
        super().__init__(self._say, name="teller")
        self._traits = replace(self._traits, tokens=True)

    def give_tokens(self) -> None:
        self.telling = True

    def _say(self, request: Any) -> Response:
        if hasattr(request, "continuation"):
            value: Any = LogProbability(-1.0 - request.index)
            tokens = Tokens((request.continuation,), (value.total,))
        else:
            value = answer_correctly(request)
            tokens = Tokens((value, "</s>"), (-0.5, -0.25))
        return Response(request_id="", value=value, tokens=tokens if self.telling else None)


@pytest.fixture
def tasks(workspace: Path) -> list[str]:
    return [str(write_task(workspace / "tasks", "sums")), str(write_choices(workspace / "tasks"))]


def run(tasks: list[str], **options: Any) -> tuple[Any, TokenModel]:
    model = TokenModel()
    return assay.run(
        model=model, tasks=tasks, output_path=options.pop("output_path", "runs"), **options
    ), model


def count_stored_tokens(made: Any) -> int:
    ((count,),) = made.journal.query("SELECT count(*) FROM tokens")
    return int(count)


def test_run_id_and_scores_are_the_same_with_and_without_tokens(tasks: list[str]) -> None:
    plain, asked = run(tasks)
    told, again = run(tasks, token_logprobs=True)
    assert told.id == f"{plain.id}-tokens"
    assert told.facts["digest"] == plain.facts["digest"]
    assert told.estimates == plain.estimates
    assert (count_stored_tokens(plain), count_stored_tokens(told)) == (0, len(asked.asked))
    assert len(again.asked) == len(asked.asked)  # nothing the cache knew without tokens was taken for them


def test_a_cached_answer_with_tokens_serves_both(tasks: list[str]) -> None:
    first, _ = run(tasks, token_logprobs=True)
    second, model = run(tasks, token_logprobs=True, output_path="other")
    assert (model.asked, count_stored_tokens(second)) == ([], count_stored_tokens(first))
    plain, model = run(tasks)
    assert (model.asked, count_stored_tokens(plain)) == ([], 0)


def test_a_repeated_run_sends_no_requests(tasks: list[str]) -> None:
    run(tasks, token_logprobs=True, no_cache=True)
    _, model = run(tasks, token_logprobs=True, no_cache=True)
    assert model.asked == [] and model.opened == 0


def test_a_later_scoring_keeps_the_tokens(tasks: list[str]) -> None:
    told, model = run(tasks, token_logprobs=True)
    scored = score(told).run
    assert count_stored_tokens(scored) == len(model.asked)


def test_the_jsonl_export_contains_tokens_and_harness_samples_do_not(
    tasks: list[str], workspace: Path
) -> None:
    told, _ = run(tasks, token_logprobs=True)
    export(told, "jsonl", [], workspace / "records.jsonl")
    record = json.loads((workspace / "records.jsonl").read_text().splitlines()[0])
    assert record["requests"][0]["tokens"] == [["1", -0.5], ["</s>", -0.25]]
    files = export(told, "lm-eval", [], workspace / "exported")
    assert len(files) > 1 and not any('"tokens"' in file.read_text() for file in files)


def test_a_model_without_tokens_is_noted_in_the_plan_and_uses_the_cache(tasks: list[str]) -> None:
    plan = plan_run(make_model(), tasks=tasks, token_logprobs=True)
    assert [note for note in plan.notes if "--token_logprobs" in note] == [
        "--token_logprobs: `scripted` does not return token log probabilities"
    ]
    assert not any(
        "--token_logprobs" in note for note in plan_run(TokenModel(), tasks=tasks, token_logprobs=True).notes
    )
    assay.run(model=ScriptedModel(), tasks=tasks)
    model = ScriptedModel()
    assay.run(model=model, tasks=tasks, token_logprobs=True)
    assert model.asked == []
