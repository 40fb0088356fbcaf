"""`LocalCompletionsAPI` and `LocalChatCompletion` without the package of lm-eval. Payloads and results were compared with those of
lm_eval 0.4.13."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.assay_compat.models.api_server import Server

from assay_compat.models.lm_eval_openai_bases import LocalChatCompletion, LocalCompletionsAPI
from assay_compat.shims.lm_eval.api.instance import Instance


def make_request(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def test_completions_send_the_settings_of_the_task(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    model = LocalCompletionsAPI(
        base_url=server.url, model="m", tokenizer_backend=None, tokenized_requests=False
    )
    settings = {"until": "x", "max_gen_toks": 5, "do_sample": False, "top_p": 0.5}
    server.failures.append((200, json.dumps({"choices": [{"index": 0, "text": "four"}]})))
    assert model.generate_until([make_request("generate_until", "two and two", settings)]) == ["four"]
    assert server.received == [
        (
            "Bearer key",
            {
                "prompt": "two and two",
                "model": "m",
                "seed": 1234,
                "max_tokens": 5,
                "temperature": 0,
                "stop": ["x"],
                "top_p": 0.5,
            },
        )
    ]


def test_completions_score_the_continuation_only() -> None:
    tops = [None, {"a": -0.1}, {"a": -0.2}, {"a": -0.3, "b": -0.1}, {"a": -9.0}]
    logprobs = {"token_logprobs": [None, -0.1, -0.2, -0.3, -9.0], "top_logprobs": tops}
    outputs = {"choices": [{"index": 0, "logprobs": logprobs}]}
    assert LocalCompletionsAPI.parse_logprobs(outputs, ctxlens=[2]) == [(-0.5, False)]
    assert LocalCompletionsAPI.parse_logprobs(outputs, ctxlens=[1])[0][0] == pytest.approx(-0.6)


def test_chat_completions_send_messages_and_remove_thinking(server: Server) -> None:
    model = LocalChatCompletion(base_url=server.url, model="m", think_end_token="</think>", batch_size=8)
    chat = model.apply_chat_template([{"role": "user", "content": "hi"}])
    choices = [{"index": 0, "message": {"content": "well</think> hello"}}]
    server.failures.append((200, json.dumps({"choices": choices})))
    request = make_request("generate_until", chat, {"until": list("abcdef")})
    assert model.generate_until([request]) == ["hello"]
    ((_, body),) = server.received
    assert (body["messages"], body["stop"]) == ([{"role": "user", "content": "hi"}], list("abcd"))
    with pytest.raises(NotImplementedError, match="log-likelihoods"):
        model.loglikelihood([])
