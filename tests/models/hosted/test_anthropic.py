"""`anthropic` against a service that is as strict as the Messages API is documented to be."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from tests.models.hosted.services import KEY, Anthropic, serving
from tests.models.remote.asking import ask, chat, generate

from assay.core.errors import InvalidOption, UserError
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Likelihood
from assay.core.records.responses import Failure, Response, Usage
from assay.models import make_model
from assay.models.hosted.anthropic import AnthropicModel, parse_message
from assay.models.remote.rate_limits import get_rate_limit


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Anthropic]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with serving(Anthropic()) as running:
        yield running


def model(service: Anthropic, **arguments: Any) -> AnthropicModel:
    given = {
        "model": "claude-haiku-4-5",
        "base_url": service.url + "/v1",
        "retry_backoff_s": 0.01,
        **arguments,
    }
    return AnthropicModel(**given)


def one(service: Anthropic, request: Any, **arguments: Any) -> Any:
    return ask(model(service, **arguments), [request])[request.id]


def test_every_request_gets_its_own_answer(service: Anthropic) -> None:
    requests = [generate(f"What is {n} + 1?", document=n) for n in range(30)]
    found = ask(model(service), requests)
    assert [found[request.id].value for request in requests] == [str(n + 1) for n in range(30)]  # type: ignore[union-attr]


def test_payload_and_reply(service: Anthropic) -> None:
    request = generate(chat("What is 2 + 2?", system="Be brief."), until=["\n\n", "Question:"], top_k=5)
    outcome = one(service, request)
    assert service.asked("/v1/messages") == [
        {
            "model": "claude-haiku-4-5",
            "max_tokens": 12,
            "temperature": 0.0,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "What is 2 + 2?"}],
            "stop_sequences": ["Question:"],
        }
    ]
    assert (outcome.value, outcome.finish) == ("4", "stop")
    assert outcome.usage == Usage(25, 1, cached_tokens=5)


def test_images_are_sent_as_base64(service: Anthropic) -> None:
    request = generate(chat("What is 1 + 1?", picture=Image.new("RGB", (8, 6), "red")))
    assert one(service, request).value == "2"
    ((call,),) = [service.asked("/v1/messages")]
    image, text = call["messages"][0]["content"]
    assert image["source"]["media_type"] == "image/png"
    assert Image.open(io.BytesIO(base64.b64decode(image["source"]["data"]))).size == (8, 6)
    assert text == {"type": "text", "text": "What is 1 + 1?"}


def test_a_prefilled_answer_is_continued(service: Anthropic) -> None:
    begun = Prompt(
        (Message("user", (Text("What is 1 + 1?"),)), Message("assistant", (Text("It is "),))), chat=True
    )
    one(service, generate(begun))
    ((call,),) = [service.asked("/v1/messages")]
    assert call["messages"][-1] == {"role": "assistant", "content": "It is"}


def test_thinking_is_separated_from_the_answer(service: Anthropic) -> None:
    outcome = one(service, generate("What is 1 + 2?"), thinking_budget=1024)
    assert (outcome.value, outcome.reasoning) == ("3", "Let me add.")
    ((call,),) = [service.asked("/v1/messages")]
    assert call["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert call["max_tokens"] == 1036
    assert "temperature" not in call


@pytest.mark.parametrize(("thinking", "thought"), [("adaptive", "Let me add."), ("disabled", None)])
def test_thinking_and_effort_are_sent(service: Anthropic, thinking: str, thought: str | None) -> None:
    outcome = one(service, generate("What is 1 + 2?"), thinking=thinking, effort="low")
    assert outcome.reasoning == thought
    ((call,),) = [service.asked("/v1/messages")]
    assert (call["thinking"], call["output_config"]) == ({"type": thinking}, {"effort": "low"})
    assert ("temperature" in call) == (thinking == "disabled")


def test_unsupported_stop_strings_are_applied_locally(service: Anthropic) -> None:
    message = {"role": "assistant", "type": "message", "model": "m", "stop_reason": "end_turn", "usage": {}}
    text = {"type": "text", "text": "first\n\nsecond"}
    service.trouble = [(200, {}, {**message, "content": [text]})]
    outcome = one(service, generate("Tell me.", until=["\n\n"]))
    assert (outcome.value, outcome.finish) == ("first", "stop")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "refused"),
    ],
)
def test_finish_reasons_are_mapped(service: Anthropic, reason: str, finish: str) -> None:
    message = {"role": "assistant", "type": "message", "model": "m", "stop_reason": reason, "usage": {}}
    service.trouble = [(200, {}, {**message, "content": [{"type": "text", "text": "x"}]})]
    assert one(service, generate("Tell me.")).finish == finish


# --- trouble -------------------------------------------------------------------------------------------


def make_overloaded_reply(status: int = 529, **headers: str) -> Any:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return status, {name.replace("_", "-"): text for name, text in headers.items()}, error


def test_an_overloaded_service_is_retried(service: Anthropic) -> None:
    service.trouble = [make_overloaded_reply(), make_overloaded_reply(500), make_overloaded_reply(503)]
    assert one(service, generate("What is 1 + 1?")).value == "2"
    assert len(service.calls) == 4


def test_retry_after_is_honoured(service: Anthropic) -> None:
    service.trouble = [make_overloaded_reply(429, retry_after="1")]
    began = time.monotonic()
    assert one(service, generate("What is 1 + 1?")).value == "2"
    assert time.monotonic() - began >= 1.0


def test_an_exhausted_rate_limit_is_waited_for(service: Anthropic) -> None:
    reset = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    service.trouble = [
        make_overloaded_reply(
            429, anthropic_ratelimit_requests_remaining="0", anthropic_ratelimit_requests_reset=reset
        )
    ]
    began = time.monotonic()
    assert one(service, generate("What is 1 + 1?")).value == "2"
    assert time.monotonic() - began >= 0.9


def test_permanent_errors_are_not_retried(service: Anthropic) -> None:
    error = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8 tokens"},
    }
    service.trouble = [(400, {}, error)]
    outcome = one(service, generate("What is 1 + 1?"))
    assert isinstance(outcome, Failure)
    assert "prompt is too long" in outcome.message
    assert len(service.calls) == 1


def test_a_rejected_setting_is_omitted_in_later_calls(service: Anthropic) -> None:
    found = ask(
        model(service, model="claude-no-temperature-1", num_concurrent=1),
        [generate(f"What is {n} + 1?", document=n) for n in range(9)],
    )
    assert all(isinstance(outcome, Response) for outcome in found.values())
    assert "temperature" not in service.asked("/v1/messages")[-1]


def test_of_two_settings_that_exclude_each_other_the_temperature_is_kept(service: Anthropic) -> None:
    request = generate("What is 1 + 1?", do_sample=True, temperature=0.5, top_p=0.9)
    assert one(service, request).value == "2"
    call = service.asked("/v1/messages")[-1]
    assert call["temperature"] == 0.5 and "top_p" not in call


def test_the_newer_protocol_takes_no_sampling_settings(service: Anthropic) -> None:
    request = generate("What is 1 + 1?", do_sample=True, temperature=0.5, top_p=0.9, top_k=3)
    assert one(service, request, anthropic_version="2026-10-21").value == "2"
    assert not {"temperature", "top_p", "top_k"} & set(service.asked("/v1/messages")[-1])


def test_an_account_without_credit_stops_the_run(service: Anthropic) -> None:
    said = "Your credit balance is too low to access the Anthropic API."
    service.trouble = [
        (400, {}, {"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    ]
    with pytest.raises(UserError, match="no credit left"):
        one(service, generate("What is 1 + 1?"))


def test_a_wrong_key_stops_the_run_and_is_not_repeated(
    service: Anthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong-key-123456")
    with pytest.raises(UserError, match="authentication failed") as caught:
        one(service, generate("What is 1 + 1?"))
    assert "sk-wrong-key-123456" not in str(caught.value)
    assert "ANTHROPIC_API_KEY" in caught.value.hint


def test_without_a_key_no_call_is_made(service: Anthropic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(InvalidOption, match="no API key for anthropic"):
        one(service, generate("What is 1 + 1?"))
    assert service.calls == []


# --- arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anthropic", "anthropic-chat", "anthropic-chat-completions", "claude"])
def test_names_of_other_harnesses_are_supported(name: str) -> None:
    made = make_model(
        name, {"model_version": "claude-sonnet-4-5", "system_prompt": "Hello", "modality": "image"}
    )
    assert made.name == "claude-sonnet-4-5"
    assert {"image", "video"} < made.traits.abilities
    assert not {"audio", "likelihood"} & made.traits.abilities


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"model": "x", "api_key": "sk-12345678"}, "`api_key` is not allowed as an argument"),
        ({}, "missing argument: model"),
        ({"model": "x", "thinking_budget": "much"}, "`thinking_budget` must be a number of tokens"),
        ({"model": "x", "effort": "much"}, "invalid value for `effort`: 'much'"),
        ({"model": "x", "num_concurent": 3}, "has no argument `num_concurent`"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint) as caught:
        AnthropicModel(**arguments)
    assert "sk-12345678" not in str(caught.value)


def test_likelihoods_fail(service: Anthropic) -> None:
    request = Likelihood(task="t", document=0, prompt=Prompt.of_text("a"), continuation="b")
    assert isinstance(one(service, request), Failure)


@pytest.mark.parametrize(
    ("address", "path"),
    [("https://api.anthropic.com/v1/messages", "/v1"), ("https://api.anthropic.com", "/v1")],
)
def test_base_url_may_include_the_path_of_a_call(address: str, path: str) -> None:
    assert AnthropicModel(model="x", base_url=address).address.path == path


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"thinking_budget": 1024},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1036},
        ),
        ({"thinking_budget": 0}, {"thinking": {"type": "disabled"}}),
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
    ],
)
def test_settings_of_reasoning_are_translated(
    service: Anthropic, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    one(service, generate(chat("What is 2 + 2?"), **settings))
    payload = service.asked("/v1/messages")[-1]
    assert {key: payload.get(key) for key in expected} == expected


def test_redacted_reasoning_is_shown_as_such() -> None:
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "4"}]
    reply = parse_message({"content": blocks, "stop_reason": "end_turn", "model": "m"})
    assert (reply.choices[0].text, reply.choices[0].reasoning) == ("4", "[redacted reasoning]")


def test_tokens_per_minute_count_what_a_reply_reports(service: Anthropic) -> None:
    outcome = one(service, generate("What is 1 + 1?"), tpm=5000)
    assert isinstance(outcome, Response) and outcome.usage is not None
    limit = get_rate_limit(service.url)
    assert limit.tokens is not None
    assert limit.tokens.counted == outcome.usage.input_tokens + outcome.usage.output_tokens > 0
