"""Model classes of lm-eval as Assay models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from tests.making import write_task

import assay
from assay.core.errors import InvalidOption, MissingPackage
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay_compat.models.lm_eval_bases import LM, TemplateLM
from assay_compat.models.lm_eval_model import LmEvalModel
from assay_compat.models.sources import ClassSource

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]


class Recorder(LM):
    """Records what it is asked; its answers are random."""

    def __init__(self, fails: str = "", **rest: Any) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[Any]]] = []
        self.fails = fails
        self.rest = rest

    def _answer(self, method: str, requests: list[Any]) -> None:
        self.calls.append((method, requests))
        if self.fails and any(self.fails in request.args[0] for request in requests):
            raise ValueError("cannot answer this")

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        self._answer("generate_until", requests)
        return [f"<{request.args[0]}>" for request in requests]

    def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
        self._answer("loglikelihood", requests)
        return [(-random.random(), True) for _ in requests]

    def loglikelihood_rolling(self, requests: Any) -> list[float]:
        self._answer("loglikelihood_rolling", requests)
        return [-float(len(request.args[0])) for request in requests]


def generate(text: str, document: int = 0) -> Generate:
    settings = Settings({"until": ["\n"], "max_gen_toks": 5})
    return Generate(task="t", document=document, prompt=Prompt.of_text(text), settings=settings)


def answer(model: LmEvalModel, requests: Sequence[Request]) -> dict[str, Outcome]:
    async def collect() -> dict[str, Outcome]:
        await model.open()
        found = {outcome.request_id: outcome async for outcome in model.answer(requests)}
        await model.close()
        return found

    return asyncio.run(collect())


def test_requests_of_a_kind_arrive_in_one_call_and_in_order() -> None:
    model = Recorder()
    likelihoods = [
        Likelihood(task="t", document=n, prompt=Prompt.of_text(f"q{n}"), continuation=" a") for n in (2, 0, 1)
    ]
    rolling = RollingLikelihood(task="t", document=0, prompt=Prompt.of_text("text"))
    outcomes = answer(LmEvalModel(model), [*likelihoods, generate("hello"), rolling])
    assert [(method, [one.args for one in requests]) for method, requests in model.calls] == [
        ("loglikelihood", [("q2", " a"), ("q0", " a"), ("q1", " a")]),
        ("generate_until", [("hello", {"until": ["\n"], "max_gen_toks": 5})]),
        ("loglikelihood_rolling", [("text",)]),
    ]
    response = outcomes[rolling.id]
    assert isinstance(response, Response) and response.value == LogProbability(-4.0)


def test_run_sends_all_tasks_in_order_with_their_documents(workspace: Path) -> None:
    for name in ("b_first", "a_second"):
        write_task(workspace / "tasks", name, ROWS, doc_to_text=f"{name}: {{{{question}}}}")
    model = Recorder()
    assay.run(
        model=LmEvalModel(model),
        tasks=["b_first", "a_second"],
        include_path=[str(workspace / "tasks")],
        no_cache=True,
    ).close()
    ((_, requests),) = model.calls
    assert [(one.task_name, one.doc_id) for one in requests] == [
        (task, number) for task in ("b_first", "a_second") for number in range(4)
    ]
    assert requests[0].doc["question"] == "What is 0 + 1?"


def test_request_that_fails_is_isolated() -> None:
    requests = [generate(f"q{number}", number) for number in range(8)]
    outcomes = answer(LmEvalModel(Recorder(fails="q5")), requests)
    failed = [number for number in range(8) if isinstance(outcomes[requests[number].id], Failure)]
    assert failed == [5]


def test_model_that_always_fails_is_broken() -> None:
    with pytest.raises(ValueError, match="cannot answer"):
        answer(LmEvalModel(Recorder(fails="q")), [generate(f"q{number}", number) for number in range(8)])


def test_a_subclass_can_change_the_results_that_its_base_reports() -> None:
    class Reporting(Recorder):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            for request in requests:
                self.cache_hook.add_partial("generate_until", request.args, "quiet")
            return ["quiet"] * len(requests)

    class Shouting(Reporting):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [text.upper() for text in super().generate_until(requests)]

    for model, expected in ((Reporting(), "quiet"), (Shouting(), "QUIET")):
        outcomes = answer(LmEvalModel(model), [generate("q0", 0)])
        assert [outcome.value for outcome in outcomes.values() if isinstance(outcome, Response)] == [expected]


def test_results_reported_to_the_cache_hook_survive_a_crash() -> None:
    class Crashing(Recorder):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            first = requests[0]
            if first.args[0] == "q0":
                self.cache_hook.add_partial("loglikelihood", first.args, "of another method")
                self.cache_hook.add_partial("generate_until", first.args, "partial")
            raise KeyboardInterrupt

    model = LmEvalModel(Crashing())
    seen: list[Outcome] = []

    async def collect() -> None:
        await model.open()
        async for outcome in model.answer([generate("q0"), generate("q1", 1)]):
            seen.append(outcome)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(collect())
    assert [outcome.value for outcome in seen if isinstance(outcome, Response)] == ["partial"]


def test_random_numbers_of_the_model_continue_from_the_seeds_of_the_run() -> None:
    """lm-eval draws eight characters three times for each task before the first request."""
    requests = [
        Likelihood(task=task, document=n, prompt=Prompt.of_text(f"{task}{n}"), continuation=" a")
        for task in ("t", "u")
        for n in range(2)
    ]
    random.seed(99)
    before = random.getstate()
    outcomes = answer(LmEvalModel(Recorder(), seeds=[0, 1234, 1234]), requests)
    assert random.getstate() == before
    sequence = random.Random(0)
    for _ in range(3 * 2):
        sequence.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8)
    values = [outcome.value for outcome in outcomes.values() if isinstance(outcome, Response)]
    assert values == [LogProbability(-sequence.random(), greedy=True) for _ in requests]


def rate(model: LmEvalModel, count: int) -> list[float]:
    requests = [
        Likelihood(task="t", document=n, prompt=Prompt.of_text(f"{n}"), continuation=" a")
        for n in range(count)
    ]
    outcomes = answer(model, requests)
    return [-outcome.value.total for outcome in outcomes.values() if isinstance(outcome, Response)]  # type: ignore[union-attr]


def test_random_numbers_of_the_model_start_where_the_loading_of_tasks_stopped() -> None:
    states = (random.Random(5).getstate(), np.random.RandomState(5).get_state())
    model = LmEvalModel(Recorder(), seeds=[0, 1234, 1234])
    model.receive_random_states(states)
    expected = random.Random(5)
    assert rate(model, 2) == [expected.random(), expected.random()]


def test_a_model_that_draws_when_it_loads_continues_its_own_sequence() -> None:
    class Drawing(Recorder):
        @classmethod
        def create_from_arg_obj(cls, arguments: Any, more: Any = None) -> Drawing:
            random.random()
            return cls()

    source = ClassSource(name="drawing", harness="lm_eval", model_class=Drawing, arguments={})
    model = LmEvalModel(source, seeds=[0, 1234, 1234])
    model.receive_random_states((random.Random(5).getstate(), np.random.RandomState(5).get_state()))
    expected = random.Random(0)
    expected.random()
    for _ in range(3):
        expected.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8)
    assert rate(model, 1) == [expected.random()]


def test_chat_template_is_the_one_of_the_class() -> None:
    class Chatting(Recorder):
        def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
            return f"{[one['content'] for one in chat_history]} {add_generation_prompt}"

    assert "chat" not in LmEvalModel(Recorder()).traits.abilities
    model = Chatting()
    adapter = LmEvalModel(model)
    assert "chat" in adapter.traits.abilities
    messages = (Message("user", (Text("hi"),)), Message("assistant", (Text("The"),)))
    prompts = [Prompt(messages[:1], chat=True), Prompt(messages, chat=True)]
    settings = Settings({})
    answer(adapter, [Generate(task="t", document=0, prompt=prompt, settings=settings) for prompt in prompts])
    assert [one.args[0] for one in model.calls[0][1]] == ["['hi'] True", "['hi', 'The'] False"]


def test_token_model_gets_contexts_and_continuations() -> None:
    class Characters(TemplateLM):
        eot_token_id = 0
        seen: Any = None

        def tok_encode(self, string: str, add_special_tokens: Any = None, **rest: Any) -> list[int]:
            return [ord(character) for character in string]

        def _loglikelihood_tokens(self, requests: Any, **rest: Any) -> Any:
            type(self).seen = requests
            return [(0.0, True)] * len(requests)

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any: ...

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> Any: ...

    pairs = [("ab ", "c"), ("", "c"), ("", "\0c")]
    answer(
        LmEvalModel(Characters()),
        [
            Likelihood(task="t", document=n, prompt=Prompt.of_text(context), continuation=continuation)
            for n, (context, continuation) in enumerate(pairs)
        ],
    )
    assert Characters.seen == [
        (pairs[0], [97, 98], [32, 99]),
        (pairs[1], [0], [99]),
        (pairs[2], [0], [99]),
    ]


def test_class_gets_arguments_and_common_options() -> None:
    source = ClassSource(
        name="recorder",
        harness="lm_eval",
        model_class=Recorder,
        arguments={"x": 1},
        batch_size=2,
        device="cpu",
    )
    assert source.create().rest == {"x": 1, "batch_size": 2, "device": "cpu"}
    identity = source.identify()
    assert (
        identity["name"] == "lm_eval/recorder" and identity["source"] and identity["arguments"] == '{"x": 1}'
    )


FILE = """
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model

    @register_model("bridge-adder", "bridge-adder-2")
    class Adder(LM):
        def __init__(self, offset=1, batch_size=1, **rest):
            super().__init__()
            self.offset = offset

        def generate_until(self, requests):
            return [str(int(one.args[0].split()[3]) + self.offset) for one in requests]

        def loglikelihood(self, requests): ...

        def loglikelihood_rolling(self, requests): ...
"""


def get_score(run: assay.Run) -> Any:
    (estimate,) = [one for one in run.estimates if one.metric == "exact_match"]
    return estimate.value


def write_model_file(folder: Path) -> str:
    path = folder / "my_models.py"
    path.write_text(dedent(FILE), "utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["bridge-adder", "bridge-adder-2", "lm_eval/bridge-adder"])
def test_class_in_a_file_of_the_user_is_a_model(workspace: Path, name: str) -> None:
    write_task(workspace / "tasks", "sums", ROWS)
    options = {
        "model": name,
        "tasks": ["sums"],
        "include_path": [str(workspace / "tasks"), write_model_file(workspace)],
        "output_path": "runs",
    }
    run = assay.run(**options)  # type: ignore[arg-type]
    assert get_score(run) == 1.0
    run.close()
    again = assay.run(**options)  # type: ignore[arg-type]  # finished: nothing is asked again
    assert again.folder == run.folder
    again.close()
    worse = assay.run(**options, model_args={"offset": 2})  # type: ignore[arg-type]
    assert get_score(worse) == 0.0
    worse.close()


def test_missing_model_file_is_an_error(workspace: Path) -> None:
    with pytest.raises(InvalidOption, match="model file not found"):
        assay.plan(model="x", tasks=["quickstart_copy"], include_path=["nothing.py"])


def test_model_of_a_package_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.machinery import PathFinder

    real = PathFinder.find_spec

    def find(name: str, *rest: Any) -> Any:
        return None if name.startswith(("lm_eval", "lmms_eval")) else real(name, *rest)

    monkeypatch.setattr(PathFinder, "find_spec", find)
    with pytest.raises(MissingPackage, match="`lmms_eval/qwen2_5_vl` needs the package `lmms_eval`"):
        assay.plan(model="lmms_eval/qwen2_5_vl", tasks=["quickstart_copy"])
