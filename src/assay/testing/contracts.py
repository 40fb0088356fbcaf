"""Contract checks for models.

    import pytest
    from assay.testing import MODEL_CHECKS

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
    def test_my_model_contract(check):
        check(lambda: MyModel(path="..."))

Each check creates its own model, sends a few short requests of every kind that the model supports, and raises
`ContractViolation` if the model violates the contract. `check_model` runs all checks.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from assay.core.ports import Ability, Model, SupportsTokenLogprobs, Traits
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.testing.violations import ContractViolation, check_tokens, require

__all__ = ["MODEL_CHECKS", "ContractViolation", "check_model", "example_requests"]

MakeModel = Callable[[], Model]

_GREEDY = Settings({"until": ["\n"], "max_gen_toks": 8, "do_sample": False})
_SAMPLED = Settings({"until": ["\n"], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0})


_LOGPROB_TOLERANCE = 1e-4
"""Tolerance for log probabilities computed in different batches."""


def check_model(make: MakeModel) -> None:
    """Run every check on models created by `make`; stop at the first violation."""
    for check in MODEL_CHECKS:
        check(make)


# --- requests ------------------------------------------------------------------------------------------


def example_requests(abilities: frozenset[Ability], needs: frozenset[Ability] = frozenset()) -> list[Request]:
    """Return a few short greedy requests for each ability, with the media the model needs."""
    requests: list[Request] = []
    if "generate" in abilities:
        prompts = [_make_prompt(question, needs, "chat" in abilities) for question in _QUESTIONS]
        requests += [_make_generate_request(number, prompt) for number, prompt in enumerate(prompts)]
        requests += [
            _make_generate_request(10 + index, prompt)
            for index, prompt in enumerate(_special_prompts(abilities, needs))
        ]
    if "likelihood" in abilities:
        requests += [
            Likelihood(
                task="contract",
                document=20 + number,
                index=index,
                prompt=_make_prompt(question),
                continuation=choice,
            )
            for number, question in enumerate(_QUESTIONS)
            for index, choice in enumerate((" red", " a blue one", " 5"))
        ]
    if "rolling" in abilities:
        texts = ("The cat sat on the mat.", "Once upon a time there was a girl.")
        requests += [
            RollingLikelihood(task="contract", document=30 + index, prompt=Prompt.of_text(text))
            for index, text in enumerate(texts)
        ]
    return requests


_QUESTIONS = ("Question: What is 2 + 3?\nAnswer:", "The sky is", "Copy: abc\nOutput:")


def _make_prompt(text: str, needs: frozenset[Ability] = frozenset(), chat: bool = False) -> Prompt:
    if not needs:
        return Prompt.of_text(text)
    return Prompt((Message("user", (*_make_required_media(needs), Text(text))),), chat=chat)


def _make_required_media(needs: frozenset[Ability]) -> list[Part]:
    """Return one media part of each kind that the model requires."""
    return [
        part for ability, part in (("image", _make_image()), ("audio", _make_audio())) if ability in needs
    ]


def _make_generate_request(
    document: int, prompt: Prompt, *, repeat: int = 0, settings: Settings = _GREEDY
) -> Generate:
    return Generate(task="contract", document=document, repeat=repeat, prompt=prompt, settings=settings)


def _special_prompts(abilities: frozenset[Ability], needs: frozenset[Ability]) -> list[Prompt]:
    """Return prompts with chat turns, images and audio, if the model supports them."""
    chat = "chat" in abilities
    prompts = []
    if chat:
        asked = Message("user", (*_make_required_media(needs), Text("What is 2 + 3?")))
        said = (Message("system", (Text("Be brief."),)), asked)
        prompts.append(Prompt(said, chat=True))
    if "image" in abilities:
        prompts.append(Prompt((Message("user", (_make_image(), Text("What color is it?"))),), chat=chat))
    if "audio" in abilities and not needs - {"audio"}:
        prompts.append(Prompt((Message("user", (_make_audio(), Text("What is said?"))),), chat=chat))
    return prompts


def _make_image() -> Image:
    def load() -> Any:
        from PIL import Image as PilImage

        return PilImage.new("RGB", (32, 32), (200, 30, 30))

    return Image(digest="assay-contract-red-32x32", load=load, source="contract")


def _make_audio() -> Audio:
    def load() -> Any:
        import numpy

        return numpy.zeros(8000, numpy.float32), 16_000

    return Audio(digest="assay-contract-half-a-second-of-silence", load=load, source="contract")


def _make_broken_media(kind: type[Image] | type[Audio] | type[Video]) -> Part:
    def load() -> Any:
        raise OSError("this file cannot be read")

    return kind(digest=f"assay-contract-broken-{kind.__name__}", load=load, source="contract")


def _build_unsupported_requests(abilities: frozenset[Ability]) -> list[Request]:
    """Return requests the model cannot answer: unsupported kinds and media, and media that fail to load."""
    prompt = _make_prompt("The sky is")
    requests: list[Request] = []
    if "generate" not in abilities:
        requests.append(_make_generate_request(40, prompt))
    if "likelihood" not in abilities:
        requests.append(Likelihood(task="contract", document=41, prompt=prompt, continuation=" blue"))
    if "rolling" not in abilities:
        requests.append(RollingLikelihood(task="contract", document=42, prompt=prompt))
    if "generate" in abilities:
        kinds: tuple[type[Image] | type[Audio] | type[Video], ...] = (Image, Audio, Video)
        for index, kind in enumerate(kinds):
            parts = (_make_broken_media(kind), Text("What is it?"))
            requests.append(
                _make_generate_request(
                    43 + index, Prompt((Message("user", parts),), chat="chat" in abilities)
                )
            )
    return requests


# --- the checks ----------------------------------------------------------------------------------------


def constructor_does_no_work(make: MakeModel) -> None:
    """The constructor is fast: weights and connections are loaded in `open`."""
    make()  # the first call may import modules
    started = time.perf_counter()
    for _ in range(5):
        make()
    seconds = (time.perf_counter() - started) / 5
    require(seconds < 0.1, f"the constructor takes {seconds:.2f} s: move the work to `open`")


def traits_are_known_before_open(make: MakeModel) -> None:
    """`name` and `traits` are valid before `open`."""
    model = make()
    require(isinstance(model, Model), "the object lacks a method or property of the `Model` port")
    require(isinstance(model.name, str) and bool(model.name), f"`name` must be a string, not {model.name!r}")
    traits = model.traits
    require(isinstance(traits, Traits), f"`traits` must be a `Traits`, not {type(traits).__name__}")
    unknown = sorted(set(traits.abilities) - set(get_args(Ability)))
    require(not unknown, f"unknown abilities: {', '.join(unknown)}")
    kinds = {"generate", "likelihood", "rolling"} & traits.abilities
    require(bool(kinds), "a model must have one of the abilities generate, likelihood or rolling")
    require(traits.window >= 1 and traits.in_flight >= 1, "`window` and `in_flight` must be at least 1")


def identity_is_known_before_open(make: MakeModel) -> None:
    """`identify` works before `open` and is stable, because responses are cached under the identity."""
    model = make()
    first, again, other = (asyncio.run(_identify(one)) for one in (model, model, make()))
    require(bool(first), "`identify` must return at least one entry")
    for key, value in first.items():
        require(
            isinstance(key, str) and isinstance(value, str),
            f"`identify` must return strings: {key!r} is {value!r}",
        )
    require(first == again, f"`identify` returned {first}, then {again}")
    require(first == other, f"two identical models returned {first} and {other}")


def every_request_gets_one_outcome(make: MakeModel) -> None:
    """Every request gets exactly one outcome with its `request_id` and the right type."""
    requests = _make_requests(make)
    outcomes = _ask(make, [requests])[0]
    expected, received = (
        sorted(request.id for request in requests),
        sorted(outcome.request_id for outcome in outcomes),
    )
    require(len(received) == len(set(received)), "a request has two outcomes")
    require(set(received) <= set(expected), "an outcome has an unknown `request_id`")
    require(
        received == expected, f"{len(expected) - len(received)} of {len(expected)} requests have no outcome"
    )
    by_id = {request.id: request for request in requests}
    for outcome in outcomes:
        _check_kind(by_id[outcome.request_id], outcome)


def _check_kind(request: Request, outcome: Outcome) -> None:
    asked = type(request).__name__
    if isinstance(outcome, Failure):
        raise ContractViolation(f"a supported {asked} request failed: {outcome.kind}: {outcome.message}")
    value = outcome.value
    if isinstance(request, Generate):
        require(isinstance(value, str), f"the value of a {asked} must be a string, not {value!r}")
        for stop in request.settings.stop:
            require(stop not in str(value), f"the response {value!r} contains the stop string {stop!r}")
        return
    if not isinstance(value, LogProbability):
        raise ContractViolation(f"the value of a {asked} must be a `LogProbability`, not {value!r}")
    require(
        isinstance(value.total, float), f"a log probability must be a float, not {type(value.total).__name__}"
    )
    require(isinstance(value.greedy, bool), f"`greedy` must be a bool, not {type(value.greedy).__name__}")
    require(not math.isnan(value.total) and value.total < 1e-4, f"{value.total} is not a log probability")


def greedy_answers_are_reproducible(make: MakeModel) -> None:
    """The same request gets an identical answer from the same model and from a new one."""
    requests = _make_requests(make)
    first, again = (_collect_values(outcomes) for outcomes in _ask(make, [requests, requests]))
    _require_equal(first, again, "a repeated request gives")
    _require_equal(first, _collect_values(_ask(make, [requests])[0]), "a second model gives")


def answers_do_not_depend_on_the_window(make: MakeModel) -> None:
    """An answer does not depend on other requests in the window, because a resumed run uses other windows.

    Log probabilities may differ by rounding.
    """
    requests = _make_requests(make)
    together, backwards = (_collect_values(outcomes) for outcomes in _ask(make, [requests, requests[::-1]]))
    _require_equal(together, backwards, "another order of requests gives", tolerance=_LOGPROB_TOLERANCE)
    alone = _ask(make, [[request] for request in requests])
    _require_equal(
        together,
        {key: value for one in alone for key, value in _collect_values(one).items()},
        "a single request gives",
        tolerance=_LOGPROB_TOLERANCE,
    )


def empty_window_gives_no_outcomes(make: MakeModel) -> None:
    """An empty window gives no outcomes and no error."""
    require(_ask(make, [[]]) == [[]], "an empty window gave outcomes")


def repeats_differ_only_with_sampling(make: MakeModel) -> None:
    """Greedy repeats are identical; sampled repeats each get their own answer."""
    if "generate" not in make().traits.abilities:
        return
    traits = make().traits
    prompt = _make_prompt(_QUESTIONS[0], traits.needs, "chat" in traits.abilities)
    greedy = [_make_generate_request(0, prompt, repeat=repeat) for repeat in range(3)]
    sampled = [replace(request, settings=_SAMPLED) for request in greedy]
    outcomes = _ask(make, [greedy, sampled])
    texts = set(_collect_values(outcomes[0]).values())
    require(len(texts) == 1, f"greedy repeats differ: {sorted(map(str, texts))}")
    require(len(_collect_values(outcomes[1])) == 3, "each sampled repeat needs its own response")


def unsupported_requests_fail(make: MakeModel) -> None:
    """An unsupported request, or media that fail to load, fail alone without affecting the window."""
    traits = make().traits
    unsupported = _build_unsupported_requests(traits.abilities)
    if traits.needs and "generate" in traits.abilities:
        unsupported.append(_make_generate_request(46, _make_prompt("The sky is")))  # lacks the required media
    if not unsupported:
        return
    good = _make_requests(make)[0]
    outcomes = {outcome.request_id: outcome for outcome in _ask(make, [[*unsupported, good]])[0]}
    for request in unsupported:
        outcome = outcomes.get(request.id)
        kind = f"{type(request).__name__} with {[type(part).__name__ for part in request.prompt.media]}"
        if not isinstance(outcome, Failure):
            raise ContractViolation(f"an unsupported {kind} must give a `Failure`, not {outcome!r}")
        require(
            bool(outcome.kind and outcome.message),
            f"the `Failure` of a {kind} must have a kind and a message: {outcome!r}",
        )
    require(
        isinstance(outcomes.get(good.id), Response),
        "a supported request failed together with unsupported ones",
    )


def tokens_match_the_answer(make: MakeModel) -> None:
    """Returning tokens does not change answers, and the tokens match the answers."""
    if not make().traits.tokens:
        return
    require(isinstance(make(), SupportsTokenLogprobs), "`Traits.tokens` requires a method `give_tokens`")
    sent = _make_requests(make)
    plain = _collect_values(_ask(make, [sent])[0])
    with_tokens = _ask(lambda: _enable_tokens(make()), [sent])[0]
    requests = {request.id: request for request in sent}
    _require_equal(
        plain, _collect_values(with_tokens), "with tokens, the model gives", tolerance=_LOGPROB_TOLERANCE
    )
    for outcome in with_tokens:
        if isinstance(outcome, Response):
            check_tokens(requests[outcome.request_id], outcome)


def _enable_tokens(model: Model) -> Model:
    if isinstance(model, SupportsTokenLogprobs):
        model.give_tokens()
    return model


def close_may_be_called_twice(make: MakeModel) -> None:
    """`close` may be called before `open`, after it, and twice."""

    async def work() -> None:
        await make().close()
        model = make()
        await model.open()
        await model.close()
        await model.close()

    asyncio.run(work())


MODEL_CHECKS: tuple[Callable[[MakeModel], None], ...] = (
    constructor_does_no_work,
    traits_are_known_before_open,
    identity_is_known_before_open,
    every_request_gets_one_outcome,
    greedy_answers_are_reproducible,
    answers_do_not_depend_on_the_window,
    empty_window_gives_no_outcomes,
    repeats_differ_only_with_sampling,
    unsupported_requests_fail,
    tokens_match_the_answer,
    close_may_be_called_twice,
)
"""All checks; each takes a function that creates the model."""


# --- running a model -----------------------------------------------------------------------------------


def _make_requests(make: MakeModel) -> list[Request]:
    traits = make().traits
    return example_requests(traits.abilities, traits.needs)


async def _identify(model: Model) -> Mapping[str, str]:
    return dict(await model.identify())


def _ask(make: MakeModel, windows: Sequence[Sequence[Request]]) -> list[list[Outcome]]:
    """Open a model, send it the windows in order, and close it."""

    async def work() -> list[list[Outcome]]:
        model = make()
        await model.open()
        try:
            return [[outcome async for outcome in model.answer(window)] for window in windows]
        finally:
            await model.close()

    return asyncio.run(work())


def _collect_values(outcomes: Sequence[Outcome]) -> dict[str, str | LogProbability]:
    return {outcome.request_id: outcome.value for outcome in outcomes if isinstance(outcome, Response)}


def _require_equal(
    first: Mapping[str, Any], second: Mapping[str, Any], what: str, *, tolerance: float = 0.0
) -> None:
    for key in {*first, *second}:
        one, other = first.get(key), second.get(key)
        same = one == other
        if isinstance(one, LogProbability) and isinstance(other, LogProbability):
            same = one.greedy == other.greedy and abs(one.total - other.total) <= tolerance
        require(same, f"{what} {other!r} instead of {one!r}")
