"""`litellm`: all services of the package `litellm`, by its names (`vertex_ai/…`, `bedrock/…`, `mistral/…`).

For services without an adapter of their own. Slower than the other adapters: the package has its own HTTP client, which
needs several times the CPU time. Assay disables the package's retries and applies its own retry policy.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from assay.core.errors import MediaError, MissingPackage, UserError
from assay.core.ports import Traits
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response, Usage
from assay.core.secrets import redact, register_secret
from assay.models.credentials import reject_key_arguments
from assay.models.finish_reasons import GenerationFailed
from assay.models.prices import build_billed_name
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.errors import BadReply, CallError, CallFailed, read_retry_after
from assay.models.remote.openai import build_identity, build_media_encoding, format_preview
from assay.models.remote.options import read_options
from assay.models.remote.output_limits import compute_output_limit
from assay.models.remote.protocol.chat import build_chat_payload, build_response, parse_chat_reply
from assay.models.remote.protocol.json_writer import to_plain_json
from assay.models.remote.protocol.media import prepare_media
from assay.models.remote.rate_limits import get_rate_limit
from assay.models.remote.token_bounds import TokenBound, TokenBounds

__all__ = ["LiteLLMModel"]

_CONCURRENCY = 32
_SELF_HOSTED_PROVIDERS = (
    "ollama",
    "ollama_chat",
    "hosted_vllm",
    "vllm",
    "lm_studio",
    "llamafile",
    "xinference",
    "triton",
)
"""Providers that run on the user's own servers and charge nothing."""

_TRANSIENT: Mapping[str, str] = {
    "RateLimitError": "rate limit",
    "Timeout": "timeout",
    "APIConnectionError": "connection",
    "InternalServerError": "server error",
    "ServiceUnavailableError": "server error",
    "BadGatewayError": "server error",
    "APIResponseValidationError": "bad reply",
}
_PERMANENT: Mapping[str, str] = {
    "BadRequestError": "bad request",
    "UnsupportedParamsError": "bad request",
    "ContextWindowExceededError": "too long",
    "NotFoundError": "not found",
    "PermissionDeniedError": "not allowed",
    "UnprocessableEntityError": "bad request",
}
_MISSING_MODULE = re.compile(r"No module named '(\w+)")
_KEY_SUFFIXES = ("_API_KEY", "_API_TOKEN", "_SECRET_ACCESS_KEY", "_SESSION_TOKEN")


class LiteLLMModel:
    """A model called with `litellm.acompletion`. Keys come from litellm's environment variables."""

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        reject_key_arguments(arguments, variables=["the variable of the provider, such as MISTRAL_API_KEY,"])
        self._base_url = str(arguments.pop("base_url", None) or "")
        given = {"rpm": rpm, "tpm": tpm, **arguments}
        self._options = read_options("litellm", given, (), seed=None)
        self._media = build_media_encoding(self._options)
        self._retry_policy = self._options.retry_policy
        self._jitter = random.Random()
        self._rate_limit = get_rate_limit(
            f"litellm {self._base_url or self._options.model.partition('/')[0]}"
        )
        self._bounds = TokenBounds(
            self._options.model, media=self._media, system_prompt=self._options.system_prompt
        )
        self._litellm: Any = None

    @property
    def name(self) -> str:
        """litellm's name of the model."""
        return self._options.model

    @property
    def billed_as(self) -> str:
        """The name of the model in price tables, which use litellm's names. litellm also reports the cost."""
        if self._base_url:
            return build_billed_name(self._base_url, self.name.partition("/")[2] or self.name)
        provider = self.name.partition("/")[0]
        return (
            ""
            if provider in _SELF_HOSTED_PROVIDERS
            else self.name
            if "/" in self.name
            else f"openai/{self.name}"
        )

    def find_output_limit(self, request: Generate) -> int | None:
        """Return the largest number of tokens of the answer, with the limits in `extra_body`."""
        return compute_output_limit(request.settings, self._options)

    @property
    def traits(self) -> Traits:
        """Text, images, audio, video as frames. The model itself may support less."""
        return Traits(
            abilities=frozenset({"generate", "chat", "image", "audio", "video", "tools"}),
            in_flight=self._options.num_concurrent or _CONCURRENCY,  # litellm does not adapt it to the server
        )

    async def identify(self) -> Mapping[str, str]:
        """Model, address and all arguments that affect answers."""
        facts = build_identity(self._options, "litellm")
        return {**facts, "base_url": self._base_url}

    def preview(self, request: Request) -> str:
        """Return the messages."""
        return format_preview(request)

    def prepare(self, part: Media) -> None:
        """Encode a media part ahead of its call; the engine calls this in a thread."""
        prepare_media(part, self._media)

    async def open(self) -> None:
        """Import the package, which takes seconds; register all keys of the environment as secrets."""
        self._litellm = await asyncio.to_thread(_import_litellm)
        self._rate_limit.set_limits(
            self._options.rpm,
            self._options.tpm,
            counting="requested" if self._options.tpm_counts == "requested" else "used",
        )
        for name, value in os.environ.items():
            if name.endswith(_KEY_SUFFIXES):
                register_secret(value)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer one request after the other; the engine runs several windows concurrently."""
        for request in window:
            if not isinstance(request, Generate):
                message = "litellm returns no log-probabilities of prompts"
                yield Failure(request_id=request.id, kind="bad request", message=message)
                continue
            yield await self._answer(request)

    async def close(self) -> None:
        """Close the package's connections."""
        closing = getattr(self._litellm, "close_litellm_async_clients", None)
        if closing is not None:
            await closing()

    async def _answer(self, request: Generate) -> Outcome:
        try:
            call = await asyncio.to_thread(self._build_call, request)
            bound = None
            if self._rate_limit.tokens is not None:
                limit = self.find_output_limit(request)
                bound = await asyncio.to_thread(self._bounds.compute, request.prompt, limit, request)
        except MediaError as error:
            return Failure(request_id=request.id, kind="bad media", message=str(error))
        began, failed = time.monotonic(), 0
        while True:
            outcome = await self._call_within_limits(request, call, bound)
            if not isinstance(outcome, CallError):
                return outcome
            failed += 1
            pause_s = self._retry_policy.compute_delay(failed, outcome, self._jitter)
            late = time.monotonic() - began + pause_s > self._retry_policy.total_timeout_s
            if not outcome.transient or failed > self._retry_policy.retries or late:
                return CallFailed(outcome, failed).to_failure(request.id)
            if outcome.retry_after_s:
                self._rate_limit.pause(pause_s)  # without limits per minute, only for the progress display
            await asyncio.sleep(pause_s)

    def _build_call(self, request: Generate) -> dict[str, Any]:
        payload = to_plain_json(build_chat_payload(request, self._options, ServerCapabilities(), self._media))
        payload.pop("include_reasoning", None)  # no argument of the package
        budget = payload.pop("thinking_token_budget", None)
        if budget is not None:  # the package translates it for each provider
            payload["thinking"] = {"type": "enabled", "budget_tokens": budget}
        address = {"api_base": self._base_url} if self._base_url else {}
        return {**payload, **address, "timeout": self._options.timeout, "num_retries": 0, "drop_params": True}

    async def _call_within_limits(
        self, request: Generate, call: dict[str, Any], bound: TokenBound | None
    ) -> Response | CallError:
        """Make one call when the limits per minute allow it."""
        rate_limit = self._rate_limit
        reservation = None
        if rate_limit.requests is not None or rate_limit.tokens is not None:
            reservation = await rate_limit.acquire(0 if bound is None else bound.total)
        started = time.monotonic()
        try:
            outcome = await self._call_once(request, call)
        except BaseException:
            rate_limit.settle(reservation, None)
            raise
        if isinstance(outcome, CallError):
            if outcome.kind == "rate limit":
                rate_limit.reject(reservation)
            else:
                rate_limit.settle(reservation, None)
            return outcome
        used = None
        if bound is not None:
            self._bounds.learn(bound, outcome.usage)
            used = bound.count(outcome.usage, rate_limit.counting)
        rate_limit.settle(reservation, used)
        return replace(outcome, seconds=time.monotonic() - started)

    async def _call_once(self, request: Generate, call: dict[str, Any]) -> Response | CallError:
        try:
            completion = await self._litellm.acompletion(**call)
            reply = parse_chat_reply(completion.model_dump())
        except GenerationFailed as error:
            return CallError(error.kind, str(error), transient=error.transient)
        except (BadReply, KeyError, TypeError, ValueError, AttributeError) as error:
            if type(error).__module__.startswith(("litellm", "openai")):
                return self._convert_error(request, error)
            return CallError("bad reply", f"{type(error).__name__}: {error}", transient=True)
        except Exception as error:  # noqa: BLE001 - the package passes on exceptions of its providers' packages
            return self._convert_error(request, error)
        usage = _add_cost(reply.usage, completion)
        return build_response(request, reply.choices[0], usage, self._options, 0.0, served=reply.served)

    def _convert_error(self, request: Generate, error: Exception) -> Response | CallError:
        """Convert an exception of the package."""
        kinds = [kind.__name__ for kind in type(error).__mro__]
        message = redact(" ".join(str(error).split())[:300])
        if missing := _find_missing_module(error):  # it imports packages only where it uses them
            raise MissingPackage.of(missing, f"this request to `{self.name}`", extra="litellm") from None
        if "ContentPolicyViolationError" in kinds:
            return Response(request_id=request.id, value="", finish="refused")
        if "AuthenticationError" in kinds:
            raise UserError(
                f"authentication failed: {message}",
                where="--model_args",
                hint="set litellm's environment variable for this provider",
            ) from None
        for kind in kinds:
            if kind in _TRANSIENT:
                headers = getattr(getattr(error, "response", None), "headers", None) or {}
                wait_s = read_retry_after(
                    {str(key).lower(): str(value) for key, value in dict(headers).items()}
                )
                return CallError(_TRANSIENT[kind], message, transient=True, retry_after_s=wait_s)
            if kind in _PERMANENT:
                return CallError(_PERMANENT[kind], message, transient=False)
        return CallError("server error", f"{kinds[0]}: {message}", transient=False)


def _find_missing_module(error: Exception) -> str:
    """Return the module that could not be imported; empty if the error has another cause, such as the text of a server."""
    found = _MISSING_MODULE.search(str(error))
    if found is None:
        return ""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    is_import = any(isinstance(one, ImportError) for one in causes)
    has_response = any(getattr(one, "response", None) is not None for one in causes)
    return found[1] if is_import or not has_response else ""


def _import_litellm() -> Any:
    os.environ.setdefault(
        "LITELLM_LOCAL_MODEL_COST_MAP", "True"
    )  # else it fetches a price list when imported
    try:
        package = import_module("litellm")
    except ImportError:
        raise MissingPackage.of("litellm", "the model `litellm`", extra="litellm") from None
    vars(package).update(suppress_debug_info=True, telemetry=False)
    return package


def _add_cost(usage: Usage | None, reply: Any) -> Usage | None:
    """Add the cost that litellm reports for a call."""
    cost = (getattr(reply, "_hidden_params", None) or {}).get("response_cost")
    if usage is None or not isinstance(cost, (int, float)) or not cost:
        return usage
    return replace(usage, cost_usd=float(cost))
