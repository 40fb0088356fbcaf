"""`litellm`: whatever service the package `litellm` knows, by its names (`vertex_ai/…`, `bedrock/…`, `mistral/…`).

For services Assay has no adapter for. Slower than those: the package does its own HTTP and costs several times the
processor time. Its retries are switched off; ours are used, so that a limit is waited out and nothing is tried for ever.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from assay.core.errors import BadMedia, MissingPackage, UserMistake
from assay.core.messages import Media
from assay.core.ports import Traits
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response, Usage
from assay.core.secrets import know_secret, redacted
from assay.models.credentials import refuse_keys
from assay.models.prices import billed_name
from assay.models.remote.bulk import plain
from assay.models.remote.chat import chat_payload, read_chat, response_of
from assay.models.remote.faults import BadReply, Fault, NotAnswered, Patience, wait_of
from assay.models.remote.media import prepare
from assay.models.remote.openai import identity_of, look_of, preview_of
from assay.models.remote.options import read_options
from assay.models.remote.seen import Seen

__all__ = ["LiteLLMModel"]

_LOCAL = ("ollama", "ollama_chat", "hosted_vllm", "vllm", "lm_studio", "llamafile", "xinference", "triton")
"""Providers that are servers of one's own, which charge nothing."""

_HEALING: Mapping[str, str] = {
    "RateLimitError": "rate limit",
    "Timeout": "timeout",
    "APIConnectionError": "connection",
    "InternalServerError": "server error",
    "ServiceUnavailableError": "server error",
    "BadGatewayError": "server error",
    "APIResponseValidationError": "bad reply",
}
_FINAL: Mapping[str, str] = {
    "BadRequestError": "bad request",
    "UnsupportedParamsError": "bad request",
    "ContextWindowExceededError": "too long",
    "NotFoundError": "not found",
    "PermissionDeniedError": "not allowed",
    "UnprocessableEntityError": "bad request",
}
_KEYS = ("_API_KEY", "_API_TOKEN", "_SECRET_ACCESS_KEY", "_SESSION_TOKEN")


class LiteLLMModel:
    """A model behind `litellm.acompletion`. Keys come from the environment variables litellm knows."""

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        refuse_keys(arguments, variables=["the variable of the provider, such as MISTRAL_API_KEY,"])
        self._base_url = str(arguments.pop("base_url", None) or "")
        given = {"rpm": rpm, "tpm": tpm, **arguments}
        self._options = read_options("litellm", given, (), seed=None)
        self._look = look_of(self._options)
        self._patience = Patience(
            retries=self._options.max_retries,
            timeout_s=self._options.timeout,
            total_s=self._options.total_timeout,
            first_wait_s=self._options.retry_backoff_s,
        )
        self._jitter = random.Random()
        self._litellm: Any = None

    @property
    def name(self) -> str:
        """The model as litellm calls it."""
        return self._options.model

    @property
    def billed_as(self) -> str:
        """litellm's names are those of the price table; it also says the cost itself."""
        if self._base_url:
            return billed_name(self._base_url, self.name.partition("/")[2] or self.name)
        provider = self.name.partition("/")[0]
        return "" if provider in _LOCAL else self.name if "/" in self.name else f"openai/{self.name}"

    @property
    def traits(self) -> Traits:
        """Text, pictures, sounds, videos as frames: what the model itself takes is found out by asking."""
        return Traits(
            abilities=frozenset({"generate", "chat", "image", "audio", "video"}),
            in_flight=self._options.most_at_once,
        )

    async def identify(self) -> Mapping[str, str]:
        """Model, address and every argument that shapes an answer."""
        facts = identity_of(self._options, "litellm")
        return {**facts, "base_url": self._base_url}

    def preview(self, request: Request) -> str:
        """The messages."""
        return preview_of(request)

    def prepare(self, part: Media) -> None:
        """Encode a medium ahead of its call; the engine does it in a thread."""
        prepare(part, self._look)

    async def open(self) -> None:
        """Import the package, which takes seconds; note every key the environment has, so that none is ever shown."""
        self._litellm = await asyncio.to_thread(_package)
        for name, value in os.environ.items():
            if name.endswith(_KEYS):
                know_secret(value)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """One request after the other; the engine has many calls open."""
        for request in window:
            if not isinstance(request, Generate):
                message = "litellm gives no probabilities of a prompt"
                yield Failure(request_id=request.id, kind="bad request", message=message)
                continue
            yield await self._answer(request)

    async def close(self) -> None:
        """Close the connections the package keeps."""
        closing = getattr(self._litellm, "close_litellm_async_clients", None)
        if closing is not None:
            await closing()

    async def _answer(self, request: Generate) -> Outcome:
        try:
            call = await asyncio.to_thread(self._call_of, request)
        except BadMedia as error:
            return Failure(request_id=request.id, kind="bad media", message=str(error))
        began, failed = time.monotonic(), 0
        while True:
            started = time.monotonic()
            outcome = await self._once(request, call)
            if not isinstance(outcome, Fault):
                return replace(outcome, seconds=time.monotonic() - started)
            failed += 1
            pause_s = self._patience.pause(failed, outcome, self._jitter)
            late = time.monotonic() - began + pause_s > self._patience.total_s
            if not outcome.heals or failed > self._patience.retries or late:
                return NotAnswered(outcome, failed).failure(request.id)
            await asyncio.sleep(pause_s)

    def _call_of(self, request: Generate) -> dict[str, Any]:
        payload = plain(chat_payload(request, self._options, Seen(), self._look))
        address = {"api_base": self._base_url} if self._base_url else {}
        return {**payload, **address, "timeout": self._options.timeout, "num_retries": 0, "drop_params": True}

    async def _once(self, request: Generate, call: dict[str, Any]) -> Response | Fault:
        try:
            reply = await self._litellm.acompletion(**call)
            reading = read_chat(reply.model_dump())
        except (BadReply, KeyError, TypeError, ValueError, AttributeError) as error:
            if type(error).__module__.startswith(("litellm", "openai")):
                return self._fault(request, error)
            return Fault("bad reply", f"{type(error).__name__}: {error}", heals=True)
        except Exception as error:  # noqa: BLE001 - the package raises what its providers' packages raise
            return self._fault(request, error)
        usage = _with_cost(reading.usage, reply)
        return response_of(request, reading.said[0], usage, self._options, 0.0, served=reading.served)

    def _fault(self, request: Generate, error: Exception) -> Response | Fault:
        """What an exception of the package means."""
        kinds = [kind.__name__ for kind in type(error).__mro__]
        said = redacted(" ".join(str(error).split())[:300])
        if "ContentPolicyViolationError" in kinds:
            return Response(request_id=request.id, value="", finish="refused")
        if "AuthenticationError" in kinds:
            raise UserMistake(
                f"the service does not take the key, or wants one: {said}",
                where="--model_args",
                hint="set the environment variable litellm reads for this provider",
            ) from None
        for kind in kinds:
            if kind in _HEALING:
                headers = getattr(getattr(error, "response", None), "headers", None) or {}
                wait_s = wait_of({str(key).lower(): str(value) for key, value in dict(headers).items()})
                return Fault(_HEALING[kind], said, heals=True, wait_s=wait_s)
            if kind in _FINAL:
                return Fault(_FINAL[kind], said, heals=False)
        return Fault("server error", f"{kinds[0]}: {said}", heals=False)


def _package() -> Any:
    os.environ.setdefault(
        "LITELLM_LOCAL_MODEL_COST_MAP", "True"
    )  # else it fetches a price list when imported
    try:
        package = import_module("litellm")
    except ImportError:
        raise MissingPackage.of("litellm", "the model `litellm`", extra="litellm") from None
    vars(package).update(suppress_debug_info=True, telemetry=False)
    return package


def _with_cost(usage: Usage | None, reply: Any) -> Usage | None:
    """What litellm says a call cost."""
    cost = (getattr(reply, "_hidden_params", None) or {}).get("response_cost")
    if usage is None or not isinstance(cost, (int, float)) or not cost:
        return usage
    return replace(usage, cost_usd=float(cost))
