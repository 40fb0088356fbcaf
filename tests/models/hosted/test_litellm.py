"""`litellm` through its own package, against a server that speaks OpenAI's protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from tests.models.hosted.services import KEY, OpenAIBatches, serving
from tests.models.remote.asking import ask, chat, generate

from assay.core.errors import InvalidOption, MissingPackage, UserError
from assay.core.records.responses import Failure, Response
from assay.models import make_model
from assay.models.hosted.litellm import LiteLLMModel
from assay.models.remote.rate_limits import get_rate_limit

pytestmark = pytest.mark.filterwarnings("ignore")  # the package warns of its own past


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIBatches]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(OpenAIBatches()) as running:
        yield running


def model(service: OpenAIBatches, **arguments: Any) -> LiteLLMModel:
    given = {
        "model": "openai/gpt-4o-mini",
        "base_url": f"{service.url}/v1",
        "retry_backoff_s": 0.01,
        **arguments,
    }
    return LiteLLMModel(**given)


@pytest.mark.services
def test_every_request_gets_its_own_answer(service: OpenAIBatches) -> None:
    requests = [generate(f"What is {n} + 1?", document=n) for n in range(5)]
    found = ask(model(service), requests)
    assert [found[request.id].value for request in requests] == ["1", "2", "3", "4", "5"]  # type: ignore[union-attr]
    outcome = found[requests[0].id]
    assert isinstance(outcome, Response)
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.cached_tokens, outcome.finish) == (40, 8, "stop")
    assert outcome.usage.cost_usd is not None


@pytest.mark.services
def test_images_are_sent(service: OpenAIBatches) -> None:
    request = generate(chat("What is 1 + 1?", picture=Image.new("RGB", (8, 6), "red")))
    assert ask(model(service), [request])[request.id].value == "2"  # type: ignore[union-attr]


@pytest.mark.services
def test_transient_errors_are_retried(service: OpenAIBatches) -> None:
    service.trouble = [
        (429, {}, {"error": {"message": "slow down"}}),
        (500, {}, {"error": {"message": "oh"}}),
    ]
    request = generate("What is 1 + 1?")
    assert ask(model(service), [request])[request.id].value == "2"  # type: ignore[union-attr]
    assert len(service.asked("/v1/chat/completions")) == 3


@pytest.mark.services
def test_permanent_errors_are_not_retried(service: OpenAIBatches) -> None:
    service.trouble = [(400, {}, {"error": {"message": "bad"}})]
    request = generate("What is 1 + 1?")
    outcome = ask(model(service), [request])[request.id]
    assert isinstance(outcome, Failure)
    assert outcome.kind == "bad request"
    assert len(service.asked("/v1/chat/completions")) == 1


@pytest.mark.services
def test_a_wrong_key_stops_the_run_and_is_not_repeated(
    service: OpenAIBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-key-123456")
    with pytest.raises(UserError, match="authentication failed") as caught:
        ask(model(service), [generate("What is 1 + 1?")])
    assert "sk-wrong-key-123456" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "base_url", "billed"),
    [
        ("gpt-4o-mini", "", "openai/gpt-4o-mini"),
        ("mistral/mistral-large", "", "mistral/mistral-large"),
        ("ollama/llama3", "", ""),
        ("openai/anything", "http://localhost:8000/v1", "localhost/anything"),
    ],
)
def test_the_billed_name_depends_on_provider_and_address(name: str, base_url: str, billed: str) -> None:
    assert LiteLLMModel(model=name, base_url=base_url).billed_as == billed


@pytest.mark.parametrize("name", ["litellm", "litellm_chat", "litellm_compatible"])
def test_names_of_other_harnesses_are_supported(name: str) -> None:
    assert make_model(name, {"model_version": "mistral/x"}).name == "mistral/x"


def test_a_key_as_an_argument_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="`api_key` is not allowed as an argument"):
        LiteLLMModel(model="x", api_key="sk-12345678")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingPackage, match="needs the package `litellm`"):
        ask(LiteLLMModel(model="x"), [generate("What is 1 + 1?")])


def test_settings_of_reasoning_are_arguments_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    reply = {
        "choices": [{"message": {"content": "5", "reasoning_content": "2+3"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 8}},
    }

    async def acompletion(**call: Any) -> Any:
        calls.append(call)
        return SimpleNamespace(model_dump=lambda: reply, _hidden_params={})

    package = ModuleType("litellm")
    vars(package).update(acompletion=acompletion)
    monkeypatch.setitem(sys.modules, "litellm", package)
    request = generate(
        "q", max_gen_toks=10, thinking_budget=64, reasoning_effort="low", include_reasoning=True
    )
    found = ask(LiteLLMModel(model="anthropic/claude"), [request])[request.id]
    assert isinstance(found, Response), found
    assert (found.value, found.reasoning) == ("5", "2+3")
    assert found.usage is not None and found.usage.reasoning_tokens == 8
    (call,) = calls
    assert call["thinking"] == {"type": "enabled", "budget_tokens": 64} and call["max_tokens"] == 74
    assert call["reasoning_effort"] == "low"
    assert "include_reasoning" not in call and "thinking_token_budget" not in call


class APIConnectionError(Exception):
    """An error of the package, with the reply of a server if there was one."""

    response: Any = None


class InternalServerError(APIConnectionError):
    response = SimpleNamespace(status_code=500, headers={})


@pytest.mark.parametrize(
    ("kind", "cause", "is_missing"),
    [
        (APIConnectionError, None, True),
        (InternalServerError, ModuleNotFoundError("No module named 'mcp.types'"), True),
        (InternalServerError, None, False),  # the text of a server
        (APIConnectionError, InternalServerError("500"), False),
    ],
)
def test_only_a_failed_import_ends_the_run_with_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], cause: Exception | None, is_missing: bool
) -> None:
    async def acompletion(**call: Any) -> Any:
        raise kind("OpenAIException - No module named 'mcp.types'") from cause

    package = ModuleType("litellm")
    vars(package).update(acompletion=acompletion)
    monkeypatch.setitem(sys.modules, "litellm", package)
    request = generate("q")
    asked = LiteLLMModel(model="openai/m", max_retries=1, retry_backoff_s=0.001)
    if is_missing:
        with pytest.raises(MissingPackage, match="`mcp`"):
            ask(asked, [request])
    else:
        outcome = ask(asked, [request])[request.id]
        assert isinstance(outcome, Failure) and "No module named" in outcome.message


def test_limits_per_minute_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {
        "choices": [{"message": {"content": "5"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 9},
    }

    async def acompletion(**call: Any) -> Any:
        return SimpleNamespace(model_dump=lambda: reply, _hidden_params={})

    package = ModuleType("litellm")
    package.acompletion = acompletion  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "litellm", package)
    request = generate("What is 2 + 3?")
    assert isinstance(ask(LiteLLMModel(model="limited/m", rpm=1, tpm=1000), [request])[request.id], Response)
    limit = get_rate_limit("litellm limited")
    assert limit.wait_s(0) > 50, "the call counts"
    assert limit.tokens is not None
    assert limit.tokens.wait_s(1000 - 39) < 5 < limit.tokens.wait_s(1000 - 38), "with the tokens it used"
