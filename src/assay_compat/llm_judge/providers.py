"""What `lmms_eval.llm_judge.providers` offers: every provider's name, over Assay's own judges and endpoints."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from typing import Any

from assay.core.secrets import know_secret
from assay_compat.llm_judge.base import AsyncServerInterface, ServerInterface
from assay_compat.llm_judge.calls import JudgeCall, Reply, house_judge, picture
from assay_compat.llm_judge.endpoints import Endpoint, EndpointModel, chat_url, open_ai_endpoint
from assay_compat.llm_judge.protocol import Request, Response, ServerConfig

__all__ = [
    "AssayProvider",
    "AsyncAzureOpenAIProvider",
    "AsyncOpenAIProvider",
    "AzureOpenAIProvider",
    "BedrockProvider",
    "DummyProvider",
    "LocalProvider",
    "OpenAIProvider",
]


class _Asking(ServerInterface):
    """Asks the run's judge (`--judge`); without one, the endpoint that the environment gives."""

    judge_name: str | None = None
    """A judge of the run this server stands for; None: the first one."""

    def is_available(self) -> bool:
        return house_judge() is not None or not self._missing()

    def evaluate(self, request: Request) -> Response:
        config = request.config or self.config
        return _response(self._call(request, config).ask(self._endpoint(config), self._missing()))

    def _missing(self) -> str:
        """What the environment lacks; empty when it lacks nothing."""
        return ""

    def _address(self, config: ServerConfig, patience: dict[str, Any]) -> Endpoint:
        raise NotImplementedError

    def _endpoint(self, config: ServerConfig) -> EndpointModel | None:
        if self._missing():
            return None
        patience = {
            "timeout_s": config.timeout,
            "attempts": config.num_retries,
            "delay_s": config.retry_delay,
            "in_flight": config.max_concurrent,
        }
        return EndpointModel(self._address(config, patience))

    def _settings(self, config: ServerConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {"max_tokens": config.max_tokens, "temperature": config.temperature}
        if config.top_p is not None:
            settings["top_p"] = config.top_p
        if config.response_format == "json":
            settings["response_format"] = {"type": "json_object"}
        return settings

    def _call(self, request: Request, config: ServerConfig) -> JudgeCall:
        messages = self.prepare_messages(request)
        if request.images:
            messages = _with_pictures(messages, request.images)
        return JudgeCall(messages, self._settings(config), name=self.judge_name)


class _AskingAsync(AsyncServerInterface, _Asking):
    def evaluate(self, request: Request) -> Response:
        return _Asking.evaluate(self, request)

    async def evaluate_async(self, request: Request) -> Response:
        config = request.config or self.config
        async with self.semaphore:
            reply = await self._call(request, config).ask_async(self._endpoint(config), self._missing())
        return _response(reply)


class OpenAIProvider(_Asking):
    """`OPENAI_API_URL` and `OPENAI_API_KEY`."""

    def _missing(self) -> str:
        return "" if os.getenv("OPENAI_API_KEY") else _nobody("OPENAI_API_KEY")

    def _address(self, config: ServerConfig, patience: dict[str, Any]) -> Endpoint:
        return open_ai_endpoint(config.model_name, **patience)

    def _settings(self, config: ServerConfig) -> dict[str, Any]:
        settings = super()._settings(config)
        if config.model_name.startswith(("gpt-5", "o1", "o3", "o4")):  # these refuse a temperature
            del settings["temperature"]
            settings["max_completion_tokens"] = settings.pop("max_tokens")
        return settings


class AzureOpenAIProvider(_Asking):
    """`AZURE_ENDPOINT` and `AZURE_API_KEY`; the model's name is that of the deployment."""

    def _missing(self) -> str:
        return next(
            (_nobody(name) for name in ("AZURE_API_KEY", "AZURE_ENDPOINT") if not os.getenv(name)), ""
        )

    def _address(self, config: ServerConfig, patience: dict[str, Any]) -> Endpoint:
        version = os.getenv("API_VERSION", "2024-02-15-preview")
        base = os.environ["AZURE_ENDPOINT"].rstrip("/")
        url = f"{base}/openai/deployments/{config.model_name}/chat/completions?api-version={version}"
        headers = {"api-key": know_secret(os.environ["AZURE_API_KEY"])}
        return Endpoint(url=url, model=config.model_name, headers=headers, **patience)


class LocalProvider(_Asking):
    """A server of one's own: `LLM_JUDGE_URL`. It is not sent pictures, as in lmms-eval."""

    @property
    def api_url(self) -> str:
        return chat_url(os.getenv("LLM_JUDGE_URL", "http://localhost:8000/v1/chat/completions"))

    def is_available(self) -> bool:
        if house_judge() is not None:
            return True
        try:
            with urllib.request.urlopen(
                self.api_url.replace("/chat/completions", "/models"), timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    def _address(self, config: ServerConfig, patience: dict[str, Any]) -> Endpoint:
        return Endpoint(url=self.api_url, model=config.model_name, **patience)

    def _settings(self, config: ServerConfig) -> dict[str, Any]:
        settings = super()._settings(config)
        settings.pop("response_format", None)
        return settings

    def _call(self, request: Request, config: ServerConfig) -> JudgeCall:
        return JudgeCall(self.prepare_messages(request), self._settings(config), name=self.judge_name)


class BedrockProvider(_Asking):
    """Amazon's service is asked through Assay's own judges only: name one with `--judge`."""

    def _missing(self) -> str:
        return "its helper asks a judge at Bedrock, which Assay reaches only through --judge NAME"


class AssayProvider(_Asking):
    """A judge of the run by its name: `get_server("assay")`, `API_TYPE=assay`, or the judge's own name."""

    def _missing(self) -> str:
        return "its helper asks the run's judge, and the run has none: name one with --judge"


class AsyncOpenAIProvider(_AskingAsync, OpenAIProvider):
    """The same for helpers that run a loop of their own."""


class AsyncAzureOpenAIProvider(_AskingAsync, AzureOpenAIProvider):
    """The same for helpers that run a loop of their own."""


class DummyProvider(ServerInterface):
    """Says `dummy` to everything."""

    def is_available(self) -> bool:
        return True

    def evaluate(self, request: Request) -> Response:
        return Response(content="dummy", model_used="dummy", usage="dummy", raw_response="dummy")


def _nobody(name: str) -> str:
    return f"its helper asks a judge, and none is set up: name one with --judge, or set {name}"


def _response(reply: Reply) -> Response:
    return Response(content=reply.content, model_used=reply.model, usage=reply.usage, raw_response=reply)


def _with_pictures(messages: list[dict[str, Any]], pictures: list[Any]) -> list[dict[str, Any]]:
    """The pictures behind the text of the last message of the user."""
    messages = list(messages)
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user":
            content = messages[at]["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
            for one in pictures:
                load: Any = picture(one).load
                parts.append({"type": "image_url", "image_url": {"url": load.url}})
            messages[at] = {**messages[at], "content": parts}
            break
    return messages
