"""Servers with and without log-probabilities of tokens."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.models.remote.embedded_server import ALL, EmbeddedServer, serving

from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability, Response, Tokens
from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.openai import OpenAIModel
from assay.models.remote.protocol.chat import parse_tokens
from assay.testing.contracts import example_requests

MODELS: dict[str, Callable[[str], Any]] = {
    "openai": lambda url: OpenAIModel(model="embedded", base_url=url),
    "openai-completions": lambda url: CompletionsModel(model="embedded", base_url=url),
}


def request_tokens(model: Any, *, tokens: bool = True) -> list[tuple[Request, Response]]:
    async def work() -> list[tuple[Request, Response]]:
        if tokens:
            model.give_tokens()
        await model.probe()
        await model.open()
        try:
            abilities = model.traits.abilities & {"generate", "likelihood", "rolling"}
            requests = {request.id: request for request in example_requests(abilities)}
            found = [outcome async for outcome in model.answer(list(requests.values()))]
        finally:
            await model.close()
        return [(requests[one.request_id], one) for one in found if isinstance(one, Response)]

    return asyncio.run(work())


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_requested_if_the_server_supports_them(name: str, server: EmbeddedServer) -> None:
    model = MODELS[name](server.url)
    answers = request_tokens(model)
    assert model.traits.tokens and answers
    for request, response in answers:
        assert response.tokens is not None
        written = "".join(response.tokens.pieces)
        if isinstance(request, Generate):
            assert str(response.value) in written
        elif isinstance(response.value, LogProbability):
            assert math.isclose(sum(response.tokens.logprobs), response.value.total, rel_tol=1e-5)
            whole = request.continuation if isinstance(request, Likelihood) else request.prompt.text
            assert whole.strip() in written
    plain = request_tokens(MODELS[name](server.url), tokens=False)
    assert all(response.tokens is None for _, response in plain)
    assert {one.request_id: one.value for _, one in plain} == {
        one.request_id: one.value for _, one in answers
    }


def test_tokens_are_returned_for_prompts_of_token_ids() -> None:
    pytest.importorskip("transformers")
    with serving(knows=ALL - {"echo"}) as server:
        model = CompletionsModel(model="embedded", base_url=server.url, tokenizer=str(SHIPPED_WEIGHTS))
        scored = [
            (request, one) for request, one in request_tokens(model) if isinstance(one.value, LogProbability)
        ]
    assert model.seen["prompt_scores"] == "prompt_logprobs" and scored
    for request, response in scored:
        assert response.tokens is not None and isinstance(response.value, LogProbability)
        assert math.isclose(sum(response.tokens.logprobs), response.value.total, rel_tol=1e-5)
        whole = request.continuation if isinstance(request, Likelihood) else request.prompt.text
        assert whole.strip() in "".join(response.tokens.pieces)


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_not_requested_if_unsupported(name: str) -> None:
    with serving(knows=ALL - {"logprobs", "prompt_logprobs"}) as server:
        model = MODELS[name](server.url)
        answers = request_tokens(model)
        assert not model.traits.tokens
        assert all(response.tokens is None for _, response in answers)
        assert not any("logprobs" in payload for payload in server.payloads[-len(answers) :])


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, None),
        ({}, None),
        ({"content": None}, None),
        ({"content": [{"token": "a", "logprob": -1, "bytes": None}]}, Tokens(("a",), (-1.0,))),
        (
            {
                "content": [
                    {"token": "?", "logprob": -1, "bytes": [195]},
                    {"token": "?", "logprob": -2, "bytes": [169]},
                ]
            },
            Tokens(("", "é"), (-1.0, -2.0)),
        ),
        ({"tokens": ["a", "b"], "token_logprobs": [-1.0, -0.5]}, Tokens(("a", "b"), (-1.0, -0.5))),
        ({"tokens": ["a", "b"], "token_logprobs": [None, -0.5]}, None),
        ({"tokens": ["a"], "token_logprobs": [-1.0, -0.5]}, None),
    ],
)
def test_tokens_are_parsed_in_both_formats(told: Any, expected: Tokens | None) -> None:
    assert parse_tokens(told) == expected
