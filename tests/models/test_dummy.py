"""The dummy model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.making import ask, write_choices, write_task

import assay
from assay.core.errors import InvalidOption
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Settings
from assay.core.records.responses import LogProbability, Outcome, Response
from assay.models.dummy import DummyModel


def generate(text: str = "Hi", repeat: int = 0, **settings: Any) -> Generate:
    return Generate(
        task="t", document=0, repeat=repeat, prompt=Prompt.of_text(text), settings=Settings(settings)
    )


def read_text(outcome: Outcome) -> str:
    assert isinstance(outcome, Response) and isinstance(outcome.value, str)
    return outcome.value


def test_it_answers_with_the_given_text_within_the_limits() -> None:
    model = DummyModel(text="one two three")
    whole, short, stopped = ask(model, generate(), generate(max_gen_toks=2), generate(until=[" t"]))
    assert [read_text(outcome) for outcome in (whole, short, stopped)] == ["one two three", "one two", "one"]
    assert isinstance(short, Response) and short.finish == "length"


def test_a_number_is_accepted_as_text() -> None:
    assert read_text(ask(DummyModel(text=42), generate())[0]) == "42"


def test_words_depend_only_on_prompt_seed_and_sampled_repeat() -> None:
    requests = [generate(), generate("Ho"), generate(repeat=1, do_sample=True), generate(do_sample=True)]
    first = [read_text(outcome) for outcome in ask(DummyModel(), *requests)]
    assert first == [read_text(outcome) for outcome in ask(DummyModel(latency_s=0.001), *requests)]
    assert len(set(first)) == 4
    assert first != [read_text(outcome) for outcome in ask(DummyModel(seed=1), *requests)]


def test_log_probabilities_are_evenly_distributed() -> None:
    requests = [
        Likelihood(
            task="t", document=number, index=at, prompt=Prompt.of_text(f"{number}?"), continuation=f" {at}"
        )
        for number in range(400)
        for at in range(4)
    ]
    outcomes = ask(DummyModel(), *requests)
    values = [
        outcome.value.total
        for outcome in outcomes
        if isinstance(outcome, Response) and isinstance(outcome.value, LogProbability)
    ]
    chosen = Counter(max(range(4), key=lambda at: values[4 * number + at]) for number in range(400))
    assert all(70 <= chosen[at] <= 130 for at in range(4))


@pytest.mark.parametrize("arguments", [{"latency_s": "slow"}, {"latency_s": -1}, {"window": 0}])
def test_an_invalid_argument_is_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        DummyModel(**arguments)


def test_a_whole_run_completes(workspace: Path) -> None:
    tasks = [str(write_task(workspace)), str(write_choices(workspace))]
    run = assay.run(model="dummy", tasks=tasks, model_args={"text": "3"})
    assert run.results["sums"]["exact_match,none"] == pytest.approx(1 / 6)
    assert 0 <= run.results["choices"]["acc,none"] <= 1
