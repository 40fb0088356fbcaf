"""`openai-completions` against the embedded model behind HTTP: the same likelihoods as the model itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.remote.asking import ask, generate
from tests.models.remote.embedded_server import ALL, EmbeddedServer, serving

from assay.core.records.messages import Prompt
from assay.core.records.requests import Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models import make_model
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.options import Options
from assay.models.remote.protocol.prompt_logprobs import PromptLikelihood, ScoringPrompt, parse_scores
from assay.models.tokens import Unanswerable


def make_completions_model(server: EmbeddedServer, **arguments: Any) -> CompletionsModel:
    return CompletionsModel(model="embedded", base_url=server.url, **arguments)


def likelihood(context: str, continuation: str, document: int = 0) -> Likelihood:
    prompt = Prompt.of_text(context)
    return Likelihood(task="t", document=document, prompt=prompt, continuation=continuation)


def questions() -> list[Request]:
    scored: list[Request] = [
        likelihood(f"Question: What is {n} + {n}?\nAnswer:", f" {choice}", n)
        for n in range(10)
        for choice in (2 * n, 2 * n + 1, "blue")
    ]
    return [
        *scored,
        likelihood("The sky is ", "blue", 90),
        likelihood("", "The sky is blue", 91),
        RollingLikelihood(task="t", document=92, prompt=Prompt.of_text("Once there was a red fox.")),
    ]


def close(told: Outcome, own: Outcome) -> None:
    assert isinstance(told, Response) and isinstance(own, Response), told
    assert isinstance(told.value, LogProbability) and isinstance(own.value, LogProbability)
    assert told.value.total == pytest.approx(own.value.total, abs=2e-4)
    assert told.value.greedy == own.value.greedy


WAYS = {
    "echo without a further token": (ALL, {}),
    "echo with one": (ALL - {"zero"}, {}),
    "one prompt a call": (ALL - {"many"}, {}),
    "texts only": (ALL - {"tokens"}, {}),
    "eight a call": (ALL, {"batch_size": 8}),
}
TOKENS = {"tokenizer": str(SHIPPED_WEIGHTS), "add_bos_token": True}
WITH_TOKENS = {
    "tokens by echo": (ALL, TOKENS),
    "tokens by prompt_logprobs": (ALL - {"echo"}, TOKENS),
    "a tokenizer, and texts": (ALL, {**TOKENS, "tokenized_requests": False}),
}


@pytest.mark.parametrize("way", WAYS)
def test_likelihoods_are_those_of_the_model_itself(way: str) -> None:
    knows, arguments = WAYS[way]
    _compare(knows, arguments)


@pytest.mark.torch
@pytest.mark.parametrize("way", WITH_TOKENS)
def test_likelihoods_of_token_ids_are_those_of_the_model_itself(way: str) -> None:
    pytest.importorskip("transformers")
    knows, arguments = WITH_TOKENS[way]
    _compare(knows, arguments)


@pytest.mark.torch
def test_long_texts_are_split_into_windows() -> None:
    """Without a start token of their own: lm-eval puts one before the first window in any case."""
    alone = likelihood("", text := "Once there was a red fox. It saw a blue bird, and the bird saw it. " * 3)
    pytest.importorskip("transformers")
    request = RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text))
    with serving() as server:
        whole = ask(make_completions_model(server, tokenizer=str(SHIPPED_WEIGHTS)), [request])[request.id]
        close(whole, ask(EmbeddedModel(), [alone])[alone.id])
        cut = ask(make_completions_model(server, tokenizer=str(SHIPPED_WEIGHTS), max_length=50), [request])[
            request.id
        ]
        assert isinstance(cut, Response) and isinstance(cut.value, LogProbability)
        assert isinstance(whole, Response) and isinstance(whole.value, LogProbability)
        assert cut.value.total < whole.value.total, "a shorter memory knows less"
        assert len(server.payloads[-1]["prompt"]) > 3, "all windows in one call"


@pytest.mark.torch
@pytest.mark.parity
@pytest.mark.parametrize("number", range(4))
def test_likelihoods_are_those_lm_eval_gets_from_the_same_server(number: int, server: EmbeddedServer) -> None:
    """lm_eval 0.4.13, `local-completions` with the same tokenizer: pairs, cut contexts, rolling windows."""
    pytest.importorskip("transformers")
    recorded = json.loads((Path(__file__).parent / "recorded_lm_eval.json").read_text("utf-8"))
    record = recorded["recorded"][number]
    pairs: list[Request] = [likelihood(start, end, at) for at, (start, end) in enumerate(recorded["pairs"])]
    texts: list[Request] = [
        RollingLikelihood(task="t", document=100 + at, prompt=Prompt.of_text(text))
        for at, text in enumerate(recorded["texts"])
    ]
    arguments = {"add_bos_token": record["add_bos_token"], "max_length": record["max_length"]}
    found = ask(make_completions_model(server, tokenizer=str(SHIPPED_WEIGHTS), **arguments), [*pairs, *texts])
    for request, (total, greedy) in zip(pairs, record["pairs"], strict=True):
        outcome = found[request.id]
        assert isinstance(outcome, Response) and isinstance(outcome.value, LogProbability), outcome
        assert outcome.value.total == pytest.approx(total, abs=1e-3)
        assert outcome.value.greedy == greedy
    for request, total in zip(texts, record["texts"], strict=True):
        outcome = found[request.id]
        assert isinstance(outcome, Response) and isinstance(outcome.value, LogProbability), outcome
        assert outcome.value.total == pytest.approx(total, abs=1e-3)


def _compare(knows: frozenset[str], arguments: dict[str, Any]) -> None:
    requests = questions()
    if "tokenized_requests" in arguments:  # two start tokens do not survive as text
        requests.pop()
    same = [*requests]
    if "add_bos_token" not in arguments:  # then a whole text has no start token of its own
        same[-1] = likelihood("", requests[-1].prompt.text, 92)
    with serving(knows=knows) as server:
        there = ask(make_completions_model(server, **arguments), requests)
        calls = server.calls["/v1/completions"]
    here = ask(EmbeddedModel(), same)
    for request, own in zip(requests, same, strict=True):
        close(there[request.id], here[own.id])
    if "many" in knows:
        assert calls < len(requests) / 2


def test_texts_are_those_of_the_model_itself(server: EmbeddedServer) -> None:
    requests = [generate(Prompt.of_text(f"What is {n} + {n}?"), document=n) for n in range(6)]
    there, here = ask(make_completions_model(server), requests), ask(EmbeddedModel(), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response)
        assert (told.value, told.finish) == (own.value, own.finish)


def test_a_server_that_ignores_echo_gets_no_likelihoods() -> None:
    with serving(knows=frozenset({"many", "tokens", "stop"})) as deaf:
        model = make_completions_model(deaf)
        assert asyncio.run(model.probe()) == []
        assert model.traits.abilities == {"generate"}
        request = likelihood("The sky is", " blue")
        outcome = ask(model, [request])[request.id]
        assert isinstance(outcome, Failure) and "no log-probabilities" in outcome.message


def test_scoring_by_token_ids_needs_a_tokenizer() -> None:
    with serving(knows=ALL - {"echo"}) as server:
        model = make_completions_model(server)
        (note,) = asyncio.run(model.probe())
        assert "tokenizer=NAME" in note and "likelihood" not in model.traits.abilities


@pytest.mark.torch
def test_one_bad_prompt_does_not_fail_the_others_of_its_call() -> None:
    pytest.importorskip("transformers")
    requests = [likelihood("The sky is", f" {n}", n) for n in range(5)]
    long = likelihood("x" * 5000, " y", 9)
    with serving() as server:
        answer = server.answer

        def refusing(path: str, payload: dict[str, Any] | None) -> dict[str, Any]:
            from tests.models.remote.embedded_server import UnsupportedCall

            if payload and "x" * 50 in str(payload.get("prompt")):
                raise UnsupportedCall("maximum context length is 1024 tokens")
            return answer(path, payload)

        server.answer = refusing  # type: ignore[method-assign]
        found = ask(make_completions_model(server), [*requests, long])
    assert all(isinstance(found[request.id], Response) for request in requests)
    failure = found[long.id]
    assert isinstance(failure, Failure) and failure.kind == "too long"


@pytest.mark.torch
def test_a_long_context_is_truncated_on_the_left_as_in_lm_eval(server: EmbeddedServer) -> None:
    pytest.importorskip("transformers")
    request = likelihood("abc " * 50, " d")
    model = make_completions_model(server, tokenizer=str(SHIPPED_WEIGHTS), max_length=21)
    outcome = ask(model, [request])[request.id]
    assert isinstance(outcome, Response) and outcome.usage is not None
    prompt = server.payloads[-1]["prompt"]
    assert len(prompt) == 20, "one token is left for the server to write"
    assert outcome.usage.truncated_tokens == len("abc " * 50 + " d") - 20
    written = generate(Prompt.of_text("abc " * 50), max_gen_toks=4)
    outcome = ask(model, [written])[written.id]
    assert isinstance(outcome, Response) and outcome.usage is not None
    prompt = server.payloads[-1]["prompt"]
    assert outcome.usage.truncated_tokens == len("abc " * 50) - len(prompt)


@pytest.mark.torch
@pytest.mark.parametrize("arguments", [{}, {"probe": False}, {"tokenized_requests": False}], ids=str)
def test_truncated_prompts_are_predicted_with_a_tokenizer(
    server: EmbeddedServer, arguments: dict[str, Any]
) -> None:
    pytest.importorskip("transformers")
    requests: list[Request] = [
        likelihood("abc " * 50, " d"),
        generate(Prompt.of_text("abc " * 50), max_gen_toks=4),
        likelihood("abc", " d"),
        generate(Prompt.of_text("abc"), max_gen_toks=4),
    ]
    arguments = {"tokenizer": str(SHIPPED_WEIGHTS), "max_length": 21, **arguments}
    model = make_completions_model(server, **arguments)
    if "probe" not in arguments:
        asyncio.run(model.probe())
    predicted = [model.preview_truncation(request) for request in requests]
    counted = [model.count_input_tokens(request) for request in requests]
    outcomes = ask(make_completions_model(server, **arguments), requests)
    usages = [one.usage for request in requests if isinstance(one := outcomes[request.id], Response)]
    assert [0 if one is None else one.truncated_tokens for one in predicted] == [
        one.truncated_tokens for one in usages if one is not None
    ]
    if "tokenized_requests" in arguments:
        assert not any(predicted), "the server gets the whole text"
    else:
        assert predicted[0] is not None and predicted[1] is not None
        assert predicted[1].text == ("abc " * 50)[-16:]
        assert counted[::2] == [one.input_tokens for one in usages[::2] if one is not None]
        assert (counted[1], counted[3]) == (16, len("abc")), "the server counts differently"
        assert (predicted[0].tokens, predicted[1].tokens) == tuple(counted[:2])


@pytest.mark.torch
def test_the_length_of_a_truncated_prompt_is_known_if_the_server_reports_no_usage() -> None:
    pytest.importorskip("transformers")
    request = generate(Prompt.of_text("abc " * 50), max_gen_toks=4)
    with serving() as server:
        answer = server.answer

        def answer_without_usage(path: str, payload: dict[str, Any] | None) -> dict[str, Any]:
            return {key: value for key, value in answer(path, payload).items() if key != "usage"}

        server.answer = answer_without_usage  # type: ignore[method-assign]
        model = make_completions_model(server, tokenizer=str(SHIPPED_WEIGHTS), max_length=21)
        outcome = ask(model, [request])[request.id]
    assert isinstance(outcome, Response) and outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.truncated_tokens) == (16, 200 - 16)


def test_nothing_is_predicted_without_a_tokenizer(server: EmbeddedServer) -> None:
    model = make_completions_model(server, max_length=21)
    request = generate(Prompt.of_text("abc " * 50), max_gen_toks=4)
    assert model.preview_truncation(request) is None
    assert model.count_input_tokens(request) is None


def test_requests_that_cannot_be_scored_fail_with_the_reason() -> None:
    choice = {
        "index": 0,
        "text": "ab",
        "logprobs": {
            "tokens": ["a", "b"],
            "token_logprobs": [None, -1.0],
            "top_logprobs": [None, {"b": -1.0}],
            "text_offset": [0, 1],
        },
    }
    (first,) = parse_scores([ScoringPrompt("ab", 0)], {"choices": [choice]})
    assert isinstance(first, Unanswerable) and "tokenizer" in str(first)
    (nothing,) = parse_scores([ScoringPrompt("ab", 2)], {"choices": [choice]})
    assert isinstance(nothing, Unanswerable)
    (good,) = parse_scores([ScoringPrompt("ab", 1)], {"choices": [choice]})
    assert good == PromptLikelihood(LogProbability(-1.0, True), 2)


def test_a_start_token_does_not_shift_the_continuation() -> None:
    """vLLM counts the letters of the start token it adds."""
    choice = {
        "index": 0,
        "text": "<s>ab cd",
        "logprobs": {
            "tokens": ["<s>", "ab", " cd", "!"],
            "token_logprobs": [None, -3.0, -1.0, -9.0],
            "top_logprobs": [None, {"x": -1.0}, {" cd": -1.0}, {"!": -9.0}],
            "text_offset": [0, 3, 5, 8],
        },
    }
    (score,) = parse_scores([ScoringPrompt("ab cd", 2)], {"choices": [choice]})
    assert score == PromptLikelihood(LogProbability(-1.0, True), 3)


@pytest.mark.parametrize("name", ["openai-completions", "local-completions"])
def test_names_of_other_harnesses_are_supported(name: str, server: EmbeddedServer) -> None:
    arguments = {"model": "embedded", "base_url": f"{server.url}/completions", "tokenized_requests": False}
    assert make_model(name, arguments).name == "embedded"
    assert Options(model="m", base_url=f"{server.url}/completions").address().url == server.url


def test_a_reply_with_both_kinds_of_scores_is_parsed_by_request() -> None:
    """vLLM adds prompt_logprobs to every echo; the scores of a text are in the echo, those of numbers in either."""
    choice = {
        "index": 0,
        "text": "ab",
        "logprobs": {
            "tokens": ["<s>", "a", "b"],
            "token_logprobs": [None, -1.0, -0.25],
            "top_logprobs": [None, {"a": -1.0, "c": -0.5}, {"b": -0.25}],
            "text_offset": [0, 3, 4],
        },
        "prompt_logprobs": [
            None,
            {"5": {"logprob": -1.0}, "7": {"logprob": -0.5}},
            {"6": {"logprob": -0.25}},
        ],
    }
    for piece in (ScoringPrompt("ab", 1), ScoringPrompt([1, 5, 6], 2)):
        assert parse_scores([piece], {"choices": [choice]}) == [
            PromptLikelihood(LogProbability(-0.25, True), 3)
        ]
