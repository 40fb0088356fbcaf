"""What every adapter of the `Model` port promises, as checks that plugin authors can run over theirs.

    import pytest
    from assay.testing import MODEL_CHECKS

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
    def test_my_model_keeps_the_contract(check):
        check(lambda: MyModel(path="..."))

Each check makes its own model, asks it a few short questions of every kind it says it can answer, and raises
`ContractBroken` with the promise that was not kept. `check_model` runs them all.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from assay.core.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.ports import Ability, GivesTokens, Model, Traits
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay.testing.promises import ContractBroken, check_tokens
from assay.testing.promises import promise as _promise

__all__ = ["MODEL_CHECKS", "ContractBroken", "check_model", "example_requests"]

MakeModel = Callable[[], Model]

_GREEDY = Settings({"until": ["\n"], "max_gen_toks": 8, "do_sample": False})
_SAMPLED = Settings({"until": ["\n"], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0})


_ROUNDING = 1e-4
"""How far log-probabilities may be apart that were computed in different company."""


def check_model(make: MakeModel) -> None:
    """Run every check over the models that `make` makes; stops at the first promise that is broken."""
    for check in MODEL_CHECKS:
        check(make)


# --- what is asked -------------------------------------------------------------------------------------


def example_requests(abilities: frozenset[Ability], needs: frozenset[Ability] = frozenset()) -> list[Request]:
    """A few short requests of every kind the abilities name, each with the media the model needs; all of them greedy."""
    requests: list[Request] = []
    if "generate" in abilities:
        prompts = [_text(question, needs, "chat" in abilities) for question in _QUESTIONS]
        requests += [_generate(number, prompt) for number, prompt in enumerate(prompts)]
        requests += [
            _generate(10 + at, prompt) for at, prompt in enumerate(_special_prompts(abilities, needs))
        ]
    if "likelihood" in abilities:
        requests += [
            Likelihood(
                task="contract", document=20 + number, index=at, prompt=_text(question), continuation=choice
            )
            for number, question in enumerate(_QUESTIONS)
            for at, choice in enumerate((" red", " a blue one", " 5"))
        ]
    if "rolling" in abilities:
        texts = ("The cat sat on the mat.", "Once upon a time there was a girl.")
        requests += [
            RollingLikelihood(task="contract", document=30 + at, prompt=Prompt.of_text(text))
            for at, text in enumerate(texts)
        ]
    return requests


_QUESTIONS = ("Question: What is 2 + 3?\nAnswer:", "The sky is", "Copy: abc\nOutput:")


def _text(text: str, needs: frozenset[Ability] = frozenset(), chat: bool = False) -> Prompt:
    if not needs:
        return Prompt.of_text(text)
    return Prompt((Message("user", (*_needed(needs), Text(text))),), chat=chat)


def _needed(needs: frozenset[Ability]) -> list[Part]:
    """A medium of each kind the model cannot do without."""
    return [part for ability, part in (("image", _picture()), ("audio", _sound())) if ability in needs]


def _generate(document: int, prompt: Prompt, *, repeat: int = 0, settings: Settings = _GREEDY) -> Generate:
    return Generate(task="contract", document=document, repeat=repeat, prompt=prompt, settings=settings)


def _special_prompts(abilities: frozenset[Ability], needs: frozenset[Ability]) -> list[Prompt]:
    """Chats, pictures and sounds, where the model takes them."""
    chat = "chat" in abilities
    prompts = []
    if chat:
        asked = Message("user", (*_needed(needs), Text("What is 2 + 3?")))
        said = (Message("system", (Text("Be brief."),)), asked)
        prompts.append(Prompt(said, chat=True))
    if "image" in abilities:
        prompts.append(Prompt((Message("user", (_picture(), Text("What color is it?"))),), chat=chat))
    if "audio" in abilities and not needs - {"audio"}:
        prompts.append(Prompt((Message("user", (_sound(), Text("What is said?"))),), chat=chat))
    return prompts


def _picture() -> Image:
    def load() -> Any:
        from PIL import Image as Pictures

        return Pictures.new("RGB", (32, 32), (200, 30, 30))

    return Image(digest="assay-contract-red-32x32", load=load, source="contract")


def _sound() -> Audio:
    def load() -> Any:
        import numpy

        return numpy.zeros(8000, numpy.float32), 16_000

    return Audio(digest="assay-contract-half-a-second-of-silence", load=load, source="contract")


def _broken(kind: type[Image] | type[Audio] | type[Video]) -> Part:
    def load() -> Any:
        raise OSError("this medium cannot be read")

    return kind(digest=f"assay-contract-broken-{kind.__name__}", load=load, source="contract")


def _beyond(abilities: frozenset[Ability]) -> list[Request]:
    """Requests the model cannot answer: kinds and media it does not have, and media that do not load."""
    prompt = _text("The sky is")
    requests: list[Request] = []
    if "generate" not in abilities:
        requests.append(_generate(40, prompt))
    if "likelihood" not in abilities:
        requests.append(Likelihood(task="contract", document=41, prompt=prompt, continuation=" blue"))
    if "rolling" not in abilities:
        requests.append(RollingLikelihood(task="contract", document=42, prompt=prompt))
    if "generate" in abilities:
        kinds: tuple[type[Image] | type[Audio] | type[Video], ...] = (Image, Audio, Video)
        for at, kind in enumerate(kinds):
            parts = (_broken(kind), Text("What is it?"))
            requests.append(_generate(43 + at, Prompt((Message("user", parts),), chat="chat" in abilities)))
    return requests


# --- the checks ----------------------------------------------------------------------------------------


def constructor_does_no_work(make: MakeModel) -> None:
    """Making a model loads nothing: weights and connections wait for `open`."""
    make()  # the first one may import
    started = time.perf_counter()
    for _ in range(5):
        make()
    seconds = (time.perf_counter() - started) / 5
    _promise(seconds < 0.1, f"making a model takes {seconds:.2f} s: leave the work to `open`")


def traits_are_known_before_open(make: MakeModel) -> None:
    """Name and traits are there at once, and make sense."""
    model = make()
    _promise(isinstance(model, Model), "the object lacks a method or property of the `Model` port")
    _promise(isinstance(model.name, str) and bool(model.name), f"`name` must be a text, not {model.name!r}")
    traits = model.traits
    _promise(isinstance(traits, Traits), f"`traits` must be a `Traits`, not {type(traits).__name__}")
    unknown = sorted(set(traits.abilities) - set(get_args(Ability)))
    _promise(not unknown, f"nobody knows the abilities {', '.join(unknown)}")
    kinds = {"generate", "likelihood", "rolling"} & traits.abilities
    _promise(bool(kinds), "a model must generate, or give likelihoods or rolling likelihoods")
    _promise(traits.window >= 1 and traits.in_flight >= 1, "`window` and `in_flight` are at least 1")


def identity_is_known_before_open(make: MakeModel) -> None:
    """`identify` needs no `open`, and gives the same facts every time: responses are kept under them."""
    model = make()
    first, again, other = (asyncio.run(_identify(one)) for one in (model, model, make()))
    _promise(bool(first), "`identify` must name at least one fact")
    for key, value in first.items():
        _promise(isinstance(key, str) and isinstance(value, str), f"facts are texts: {key!r} is {value!r}")
    _promise(first == again, f"`identify` gives {first}, then {again}")
    _promise(first == other, f"two models made alike give {first} and {other}")


def every_request_gets_one_outcome(make: MakeModel) -> None:
    """One outcome per request, named by `request_id`, of the kind that was asked for."""
    requests = _requests(make)
    outcomes = _ask(make, [requests])[0]
    wanted, given = (
        sorted(request.id for request in requests),
        sorted(outcome.request_id for outcome in outcomes),
    )
    _promise(len(given) == len(set(given)), "a request was answered twice")
    _promise(set(given) <= set(wanted), "an outcome names a request nobody made")
    _promise(given == wanted, f"{len(wanted) - len(given)} of {len(wanted)} requests have no outcome")
    by_id = {request.id: request for request in requests}
    for outcome in outcomes:
        _check_kind(by_id[outcome.request_id], outcome)


def _check_kind(request: Request, outcome: Outcome) -> None:
    asked = type(request).__name__
    if isinstance(outcome, Failure):
        raise ContractBroken(
            f"a {asked} the model says it can answer failed: {outcome.kind}: {outcome.message}"
        )
    value = outcome.value
    if isinstance(request, Generate):
        _promise(isinstance(value, str), f"a {asked} is answered with a text, not {value!r}")
        for stop in request.settings.stop:
            _promise(stop not in str(value), f"the answer {value!r} holds the stop string {stop!r}")
        return
    if not isinstance(value, LogProbability):
        raise ContractBroken(f"a {asked} is answered with a `LogProbability`, not {value!r}")
    _promise(
        isinstance(value.total, float), f"a log-probability is a float, not {type(value.total).__name__}"
    )
    _promise(isinstance(value.greedy, bool), f"`greedy` is a bool, not {type(value.greedy).__name__}")
    _promise(not math.isnan(value.total) and value.total < 1e-4, f"{value.total} is not a log-probability")


def greedy_answers_are_the_same_again(make: MakeModel) -> None:
    """The same question gets the same answer, bit for bit, from the same model and from a new one."""
    requests = _requests(make)
    first, again = (_values(outcomes) for outcomes in _ask(make, [requests, requests]))
    _same(first, again, "asked again, the model answers")
    _same(first, _values(_ask(make, [requests])[0]), "a second model answers")


def order_and_company_do_not_matter(make: MakeModel) -> None:
    """An answer does not depend on what else is in the window: a continued run asks in other windows.

    Log-probabilities may differ in their last digits, as sums do that are added up in another order.
    """
    requests = _requests(make)
    together, backwards = (_values(outcomes) for outcomes in _ask(make, [requests, requests[::-1]]))
    _same(together, backwards, "asked in another order, the model answers", tolerance=_ROUNDING)
    alone = _ask(make, [[request] for request in requests])
    _same(
        together,
        {key: value for one in alone for key, value in _values(one).items()},
        "asked alone, it answers",
        tolerance=_ROUNDING,
    )


def an_empty_window_gives_nothing(make: MakeModel) -> None:
    """Nothing asked, nothing answered, nothing broken."""
    _promise(_ask(make, [[]]) == [[]], "an empty window got outcomes")


def repeats_differ_only_with_sampling(make: MakeModel) -> None:
    """Greedy repeats are equal; sampled ones are answered one by one and may differ."""
    if "generate" not in make().traits.abilities:
        return
    traits = make().traits
    prompt = _text(_QUESTIONS[0], traits.needs, "chat" in traits.abilities)
    greedy = [_generate(0, prompt, repeat=repeat) for repeat in range(3)]
    sampled = [replace(request, settings=_SAMPLED) for request in greedy]
    outcomes = _ask(make, [greedy, sampled])
    texts = set(_values(outcomes[0]).values())
    _promise(len(texts) == 1, f"greedy repeats differ: {sorted(map(str, texts))}")
    _promise(len(_values(outcomes[1])) == 3, "each sampled repeat needs an answer of its own")


def what_it_cannot_do_is_a_failure(make: MakeModel) -> None:
    """A kind or medium the model cannot take, or a picture that does not load, costs that request, not the window."""
    traits = make().traits
    beyond = _beyond(traits.abilities)
    if traits.needs and "generate" in traits.abilities:
        beyond.append(_generate(46, _text("The sky is")))  # nothing to look at, nothing to answer
    if not beyond:
        return
    good = _requests(make)[0]
    outcomes = {outcome.request_id: outcome for outcome in _ask(make, [[*beyond, good]])[0]}
    for request in beyond:
        outcome = outcomes.get(request.id)
        kind = f"{type(request).__name__} with {[type(part).__name__ for part in request.prompt.media]}"
        if not isinstance(outcome, Failure):
            raise ContractBroken(f"a {kind} that cannot be answered must be a `Failure`, not {outcome!r}")
        _promise(bool(outcome.kind and outcome.message), f"the failure of a {kind} must say why: {outcome!r}")
    _promise(
        isinstance(outcomes.get(good.id), Response),
        "a request that could be answered was lost with the others",
    )


def tokens_are_those_of_the_answer(make: MakeModel) -> None:
    """A model that tells its tokens answers as it does without, and each answer is made of what it tells."""
    if not make().traits.tokens:
        return
    _promise(isinstance(make(), GivesTokens), "`Traits.tokens` promises a method `give_tokens`")
    asked = _requests(make)
    plain = _values(_ask(make, [asked])[0])
    told = _ask(lambda: _telling(make()), [asked])[0]
    requests = {request.id: request for request in asked}
    _same(plain, _values(told), "telling its tokens, the model answers", tolerance=_ROUNDING)
    for outcome in told:
        if isinstance(outcome, Response):
            check_tokens(requests[outcome.request_id], outcome)


def _telling(model: Model) -> Model:
    if isinstance(model, GivesTokens):
        model.give_tokens()
    return model


def close_may_be_called_twice(make: MakeModel) -> None:
    """`close` is safe whenever it comes: before `open`, after it, and again."""

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
    greedy_answers_are_the_same_again,
    order_and_company_do_not_matter,
    an_empty_window_gives_nothing,
    repeats_differ_only_with_sampling,
    what_it_cannot_do_is_a_failure,
    tokens_are_those_of_the_answer,
    close_may_be_called_twice,
)
"""Every check, each a function of a function that makes the model."""


# --- asking --------------------------------------------------------------------------------------------


def _requests(make: MakeModel) -> list[Request]:
    traits = make().traits
    return example_requests(traits.abilities, traits.needs)


async def _identify(model: Model) -> Mapping[str, str]:
    return dict(await model.identify())


def _ask(make: MakeModel, windows: Sequence[Sequence[Request]]) -> list[list[Outcome]]:
    """Open one model, ask it the windows one after the other, close it."""

    async def work() -> list[list[Outcome]]:
        model = make()
        await model.open()
        try:
            return [[outcome async for outcome in model.answer(window)] for window in windows]
        finally:
            await model.close()

    return asyncio.run(work())


def _values(outcomes: Sequence[Outcome]) -> dict[str, str | LogProbability]:
    return {outcome.request_id: outcome.value for outcome in outcomes if isinstance(outcome, Response)}


def _same(first: Mapping[str, Any], second: Mapping[str, Any], what: str, *, tolerance: float = 0.0) -> None:
    for key in {*first, *second}:
        one, other = first.get(key), second.get(key)
        same = one == other
        if isinstance(one, LogProbability) and isinstance(other, LogProbability):
            same = one.greedy == other.greedy and abs(one.total - other.total) <= tolerance
        _promise(same, f"{what} {other!r} where it was {one!r}")
