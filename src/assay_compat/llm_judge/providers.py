"""Implementation of `lmms_eval.llm_judge.providers` on Assay's judges and endpoints."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from typing import Any

from assay.models.credentials import check_key
from assay_compat.llm_judge.calls import JudgeCall, JudgeReply, find_run_judge, image_from_value
from assay_compat.llm_judge.endpoints import Endpoint, EndpointModel, build_chat_url, build_openai_endpoint
from assay_compat.llm_judge.protocol import Request, Response, ServerConfig
from assay_compat.llm_judge.server import AsyncServerInterface, ServerInterface

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


class _JudgeServer(ServerInterface):
    """Calls the run's judge (`--judge`), or the endpoint set by environment variables."""

    judge_name: str | None = None
    """The judge of the run to call; None: the first one."""

    def is_available(self) -> bool:
        return find_run_judge() is not None or not self._find_missing_setting()

    def evaluate(self, request: Request) -> Response:
        config = request.config or self.config
        return _to_response(
            self._build_call(request, config).ask(self._open_endpoint(config), self._find_missing_setting())
        )

    def _find_missing_setting(self) -> str:
        """Return a message about the missing environment variable, or an empty string."""
        return ""

    def _build_endpoint(self, config: ServerConfig, limits: dict[str, Any]) -> Endpoint:
        raise NotImplementedError

    def _open_endpoint(self, config: ServerConfig) -> EndpointModel | None:
        if self._find_missing_setting():
            return None
        limits = {
            "timeout_s": config.timeout,
            "attempts": config.num_retries,
            "delay_s": config.retry_delay,
            "in_flight": config.max_concurrent,
        }
        return EndpointModel(self._build_endpoint(config, limits))

    def _build_settings(self, config: ServerConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {"max_tokens": config.max_tokens, "temperature": config.temperature}
        if config.top_p is not None:
            settings["top_p"] = config.top_p
        if config.response_format == "json":
            settings["response_format"] = {"type": "json_object"}
        return settings

    def _build_call(self, request: Request, config: ServerConfig) -> JudgeCall:
        messages = self.prepare_messages(request)
        if request.images:
            messages = _append_images(messages, request.images)
        return JudgeCall(messages, self._build_settings(config), name=self.judge_name)


class _AsyncJudgeServer(AsyncServerInterface, _JudgeServer):
    def evaluate(self, request: Request) -> Response:
        return _JudgeServer.evaluate(self, request)

    async def evaluate_async(self, request: Request) -> Response:
        config = request.config or self.config
        async with self.semaphore:
            reply = await self._build_call(request, config).ask_async(
                self._open_endpoint(config), self._find_missing_setting()
            )
        return _to_response(reply)


class OpenAIProvider(_JudgeServer):
    """OpenAI endpoint set by `OPENAI_API_URL` and `OPENAI_API_KEY`."""

    def _find_missing_setting(self) -> str:
        return "" if os.getenv("OPENAI_API_KEY") else _format_missing_judge("OPENAI_API_KEY")

    def _build_endpoint(self, config: ServerConfig, limits: dict[str, Any]) -> Endpoint:
        return build_openai_endpoint(config.model_name, **limits)

    def _build_settings(self, config: ServerConfig) -> dict[str, Any]:
        settings = super()._build_settings(config)
        if config.model_name.startswith(("gpt-5", "o1", "o3", "o4")):  # these models reject a temperature
            del settings["temperature"]
            settings["max_completion_tokens"] = settings.pop("max_tokens")
        return settings


class AzureOpenAIProvider(_JudgeServer):
    """Azure endpoint set by `AZURE_ENDPOINT` and `AZURE_API_KEY`; the model name is the deployment name."""

    def _find_missing_setting(self) -> str:
        return next(
            (
                _format_missing_judge(name)
                for name in ("AZURE_API_KEY", "AZURE_ENDPOINT")
                if not os.getenv(name)
            ),
            "",
        )

    def _build_endpoint(self, config: ServerConfig, limits: dict[str, Any]) -> Endpoint:
        version = os.getenv("API_VERSION", "2024-02-15-preview")
        base = os.environ["AZURE_ENDPOINT"].rstrip("/")
        url = f"{base}/openai/deployments/{config.model_name}/chat/completions?api-version={version}"
        headers = {
            "api-key": check_key(
                os.environ["AZURE_API_KEY"].strip(), where="environment variable AZURE_API_KEY"
            )
        }
        return Endpoint(url=url, model=config.model_name, headers=headers, **limits)


class LocalProvider(_JudgeServer):
    """Local server set by `LLM_JUDGE_URL`. It receives no images, as in lmms-eval."""

    @property
    def api_url(self) -> str:
        return build_chat_url(os.getenv("LLM_JUDGE_URL", "http://localhost:8000/v1/chat/completions"))

    def is_available(self) -> bool:
        if find_run_judge() is not None:
            return True
        try:
            with urllib.request.urlopen(
                self.api_url.replace("/chat/completions", "/models"), timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    def _build_endpoint(self, config: ServerConfig, limits: dict[str, Any]) -> Endpoint:
        return Endpoint(url=self.api_url, model=config.model_name, **limits)

    def _build_settings(self, config: ServerConfig) -> dict[str, Any]:
        settings = super()._build_settings(config)
        settings.pop("response_format", None)
        return settings

    def _build_call(self, request: Request, config: ServerConfig) -> JudgeCall:
        return JudgeCall(self.prepare_messages(request), self._build_settings(config), name=self.judge_name)


class BedrockProvider(_JudgeServer):
    """Amazon Bedrock, which is supported only through `--judge`."""

    def _find_missing_setting(self) -> str:
        return "the helper calls a judge on Bedrock, which is supported only through --judge NAME"


class AssayProvider(_JudgeServer):
    """A judge of the run: `get_server("assay")`, `API_TYPE=assay`, or the name of the judge."""

    def _find_missing_setting(self) -> str:
        return "the helper calls the judge of the run, but the run has none: set --judge"


class AsyncOpenAIProvider(_AsyncJudgeServer, OpenAIProvider):
    """Asynchronous version for helpers that run their own event loop."""


class AsyncAzureOpenAIProvider(_AsyncJudgeServer, AzureOpenAIProvider):
    """Asynchronous version for helpers that run their own event loop."""


class DummyProvider(ServerInterface):
    """Returns `dummy` for every request."""

    def is_available(self) -> bool:
        return True

    def evaluate(self, request: Request) -> Response:
        return Response(content="dummy", model_used="dummy", usage="dummy", raw_response="dummy")


def _format_missing_judge(name: str) -> str:
    return f"the helper calls a judge, but none is configured: set --judge or {name}"


def _to_response(reply: JudgeReply) -> Response:
    return Response(content=reply.content, model_used=reply.model, usage=reply.usage, raw_response=reply)


def _append_images(messages: list[dict[str, Any]], images: list[Any]) -> list[dict[str, Any]]:
    """Append images to the last user message."""
    messages = list(messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "user":
            content = messages[index]["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
            for one in images:
                load: Any = image_from_value(one).load
                parts.append({"type": "image_url", "image_url": {"url": load.url}})
            messages[index] = {**messages[index], "content": parts}
            break
    return messages
