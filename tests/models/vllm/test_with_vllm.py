"""The real engine on a tiny checkpoint gives the numbers of transformers; errors fail only their request."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
from tests.models.hf.tiny_checkpoints import tiny_checkpoint
from tests.models.vllm.shared_engine import SharedModel, share_model

from assay.core.errors import AssayError
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models.hf import HfModel
from assay.models.vllm import VllmModel
from assay.testing import MODEL_CHECKS

if find_spec("vllm") is None:
    pytest.skip("not installed: vllm", allow_module_level=True)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

WORDS = "the sky is blue and a cat sat on what upon time once answer Question: two red birds".split()
GREEDY = {"until": ["\n"], "max_gen_toks": 16, "do_sample": False}


def folder() -> str:
    """A checkpoint with heads of size 32, the minimum of vLLM's CPU attention."""
    return str(tiny_checkpoint("llama", hidden_size=128, intermediate_size=192))


@pytest.fixture(scope="module")
def engine() -> Iterator[SharedModel]:
    with share_model(
        VllmModel, pretrained=folder(), dtype="float32", enforce_eager=True, block_size=32
    ) as made:
        yield made


@pytest.fixture(scope="module")
def contexts() -> list[str]:
    draw = random.Random(3)
    made = [" ".join(draw.choice(WORDS) for _ in range(count)) for count in (1, 5, 20, 60, 100)]
    return ["", *made, f"{made[3]} {made[1]}", f"{made[3]} {made[2]}"]


def hf_answers(requests: Sequence[Request]) -> dict[str, Outcome]:
    async def work() -> dict[str, Outcome]:
        model = HfModel(pretrained=folder(), dtype="float32", batch_size=8)
        await model.open()
        found = {outcome.request_id: outcome async for outcome in model.answer(requests)}
        await model.close()
        return found

    return asyncio.run(work())


def make_generate(text: str | Prompt, settings: dict[str, Any] | None = None, repeat: int = 0) -> Generate:
    prompt = Prompt.of_text(text) if isinstance(text, str) else text
    return Generate(task="t", document=0, prompt=prompt, settings=Settings(settings or GREEDY), repeat=repeat)


def responses(outcomes: dict[str, Outcome], requests: Sequence[Request]) -> list[Response]:
    found = [outcomes[request.id] for request in requests]
    assert all(isinstance(one, Response) for one in found), [one for one in found if isinstance(one, Failure)]
    return [one for one in found if isinstance(one, Response)]


def _whole(response: Response) -> str:
    """The text without special tokens, which lm-eval's vLLM keeps and its transformers leaves out, and without a character
    that was cut in the middle: vLLM keeps it back, transformers writes a mark for it."""
    return re.sub(r"<s>|<pad>|</think>", "", str(response.value)).rstrip("\ufffd")


def test_likelihoods_equal_transformers_and_share_contexts(engine: SharedModel, contexts: list[str]) -> None:
    requests = [
        Likelihood(task="t", document=at, prompt=Prompt.of_text(context), continuation=choice)
        for at, context in enumerate(contexts)
        for choice in (" red", " the sky is blue", "\nAnswer: a cat", " what")
    ]
    ours, theirs = responses(engine.ask(requests), requests), responses(hf_answers(requests), requests)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one.value, LogProbability) and isinstance(other.value, LogProbability)
        assert one.value.total == pytest.approx(other.value.total, abs=1e-3)
        assert one.value.greedy == other.value.greedy
    read = sum(one.usage.input_tokens for one in ours if one.usage)
    cached = sum(one.usage.cached_tokens for one in ours if one.usage)
    assert cached > read / 2, f"{cached} of {read} tokens came from the cache"


def test_a_greedy_continuation_is_reported_as_greedy(engine: SharedModel, contexts: list[str]) -> None:
    wrote = make_generate(contexts[3], {"max_gen_toks": 3, "do_sample": False})
    [written] = responses(engine.ask([wrote]), [wrote])
    asked = Likelihood(
        task="t", document=0, prompt=Prompt.of_text(contexts[3]), continuation=str(written.value)
    )
    [read], [expected] = responses(engine.ask([asked]), [asked]), responses(hf_answers([asked]), [asked])
    assert isinstance(read.value, LogProbability) and isinstance(expected.value, LogProbability)
    assert read.value.greedy == expected.value.greedy


def test_long_texts_are_scored_in_windows(engine: SharedModel, contexts: list[str]) -> None:
    short = [RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text)) for text in contexts[1:4]]
    ours, theirs = responses(engine.ask(short), short), responses(hf_answers(short), short)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one.value, LogProbability) and isinstance(other.value, LogProbability)
        assert one.value.total == pytest.approx(other.value.total, abs=1e-3)
    long = RollingLikelihood(task="t", document=1, prompt=Prompt.of_text(" ".join(contexts[1:] * 3)))
    [whole] = responses(engine.ask([long]), [long])
    assert isinstance(whole.value, LogProbability) and whole.usage and whole.usage.output_tokens > 512
    assert whole.value.total < -512


def test_greedy_texts_equal_transformers(engine: SharedModel, contexts: list[str]) -> None:
    chat = Prompt((Message("system", (Text("Be brief."),)), Message("user", (Text("Hi"),))), chat=True)
    going_on = Prompt((*chat.messages, Message("assistant", (Text("the sky"),))), chat=True)
    settings: list[dict[str, Any]] = [
        GREEDY,
        {"until": ["o", " bl"], "max_gen_toks": 24},
        {"max_gen_toks": 1},
    ]
    prompts: list[str | Prompt] = [*contexts[1:], chat, going_on]
    requests = [make_generate(text, some) for text in prompts for some in settings]
    ours, theirs = responses(engine.ask(requests), requests), responses(hf_answers(requests), requests)
    assert [_whole(one) for one in ours] == [_whole(one) for one in theirs]
    assert [one.finish for one in ours] == [one.finish for one in theirs]


def test_sampled_repeats_differ_and_are_reproducible(engine: SharedModel) -> None:
    sampled = {"max_gen_toks": 12, "do_sample": True, "temperature": 1.0, "top_p": 0.9, "min_p": 0.01}
    requests = [make_generate("the sky", sampled, repeat) for repeat in range(4)]
    first, again = (
        [one.value for one in responses(engine.ask(window), requests)]
        for window in (requests, requests[::-1])
    )
    assert first == again and len(set(first)) > 1


def test_an_unanswerable_request_fails_alone(engine: SharedModel) -> None:
    bad: list[Request] = [
        make_generate("the sky", {"max_gen_toks": 5000}),
        make_generate("the sky", {"max_gen_toks": 4, "flavour": "mild"}),
        make_generate("the sky", {"max_gen_toks": 4, "num_beams": 3}),
        Likelihood(task="t", document=0, prompt=Prompt.of_text("a"), continuation="x " * 600),
    ]
    good: list[Request] = [
        make_generate("the sky is", {"max_gen_toks": 4}),
        make_generate("blue " * 900, {"max_gen_toks": 4}),
    ]
    outcomes = engine.ask([*bad, *good])
    failures = [outcomes[request.id] for request in bad]
    assert all(isinstance(one, Failure) and one.kind == "bad request" for one in failures), failures
    words = " ".join(one.message for one in failures if isinstance(one, Failure))
    for reason in ("no room for the prompt", "flavour", "num_beams", "tokens, the context length is"):
        assert reason in words
    assert len(responses(outcomes, good)) == 2


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_model_contract(check: Callable[..., None], engine: SharedModel) -> None:
    check(engine.make_view)


def test_its_identity_contains_engine_dtype_and_weights(engine: SharedModel) -> None:
    facts = engine.do(engine.model.identify())
    assert facts["engine"].startswith("vllm ") and facts["dtype"] == "float32" and facts["weights_sha256"]


def test_a_dead_engine_is_an_error(
    engine: SharedModel,
) -> None:  # last, because it stops the engine
    requests = [make_generate(f"the sky {at}", {"max_gen_toks": 200, "ignore_eos": True}) for at in range(8)]
    for process in multiprocessing.active_children():
        if "engine" in process.name.lower() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(AssayError, match="vLLM engine died") as caught:
        engine.ask(requests)
    assert "All answers so far are saved" in caught.value.hint
