"""Judge endpoints configured by environment variables, as in lmms-eval: an OpenAI-compatible URL and an API key.

An endpoint is a model of Assay, so that its requests are journalled, cached and counted.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from assay.core.ports import Traits
from assay.core.records.messages import Audio, Image, Message, Text, Video
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response, Usage
from assay.models.credentials import check_key
from assay.models.finish_reasons import OPENAI, GenerationFailed, raise_reported_error
from assay.models.prices import build_billed_name

__all__ = ["Endpoint", "EndpointModel", "build_openai_endpoint", "find_missing_setting"]

_MAX_BODY_BYTES = 64 * 2**20
_RETRYABLE_STATUS = frozenset((408, 409, 425, 429))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A chat completions URL with its timeout and retry settings."""

    url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 60.0
    attempts: int = 5
    delay_s: float = 10.0
    in_flight: int = 10

    def post(self, payload: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Send a request with retries; return the response body or the last failure."""
        failure = Failure(request_id="", kind="bad request", message="no attempt was made")
        for attempt in range(1, max(1, self.attempts) + 1):
            wait_s = self.delay_s
            try:
                return self._post({"model": self.model, **payload})
            except urllib.error.HTTPError as error:
                body = error.read(2000).decode("utf-8", "replace")
                kind = (
                    "rate limit"
                    if error.code == 429
                    else "server error"
                    if error.code >= 500
                    else "bad request"
                )
                failure = Failure(
                    request_id="",
                    kind=kind,
                    message=f"{_format_http_error(error)}: {body[:500]}",
                    attempts=attempt,
                )
                if kind == "bad request" and error.code not in _RETRYABLE_STATUS:
                    return failure
                wait_s = _parse_retry_after(error.headers.get("Retry-After"), wait_s)
            except TimeoutError:
                message = f"no response within {self.timeout_s:g} s"
                failure = Failure(request_id="", kind="timeout", message=message, attempts=attempt)
            except urllib.error.URLError as error:
                kind = "timeout" if isinstance(error.reason, TimeoutError) else "connection"
                failure = Failure(request_id="", kind=kind, message=str(error.reason), attempts=attempt)
            except GenerationFailed as error:
                failure = Failure(request_id="", kind=error.kind, message=str(error), attempts=attempt)
                if not error.transient:
                    return failure
            except (OSError, ValueError, RecursionError) as error:
                failure = Failure(
                    request_id="",
                    kind="server error",
                    message=f"{type(error).__name__}: {error}",
                    attempts=attempt,
                )
            if attempt < self.attempts:
                time.sleep(wait_s)
        return failure

    def _post(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url,
            data=json.dumps(payload).encode(),
            headers={"Content-Type": "application/json", **self.headers},
        )
        with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
            body = answer.read(_MAX_BODY_BYTES + 1)
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"the response is larger than {_MAX_BODY_BYTES // 2**20} MB")
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError("the response is not a JSON object")
        raise_reported_error(content)
        for choice in content.get("choices") or ():
            if isinstance(choice, dict):
                raise_reported_error(choice, " for this choice")
                OPENAI.classify(choice.get("finish_reason"))
        return content


class EndpointModel:
    """An endpoint as a model. Settings are sent unchanged."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        return self._endpoint.model

    @property
    def billed_as(self) -> str:
        """The name in the price table."""
        return build_billed_name(self._endpoint.url, self._endpoint.model)

    @property
    def traits(self) -> Traits:
        abilities = frozenset(("generate", "chat", "image"))
        return Traits(abilities=abilities, window=1, in_flight=self._endpoint.in_flight)  # type: ignore[arg-type]

    async def identify(self) -> Mapping[str, str]:
        return {"model": self._endpoint.model, "url": self._endpoint.url}

    async def open(self) -> None:
        """Do nothing: the first request connects."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            yield await self._answer_in_thread(request)

    async def close(self) -> None:
        """Do nothing: requests in flight belong to daemon threads."""

    async def _answer_in_thread(self, request: Request) -> Outcome:
        """Answer in a daemon thread, so that a slow request does not keep the process alive."""
        done: Future[Outcome] = Future()

        def ask() -> None:
            try:
                done.set_result(self.answer_one(request))
            except BaseException as error:  # noqa: BLE001 - passed to the awaiting task
                done.set_exception(error)

        threading.Thread(target=ask, name="assay-judge-endpoint", daemon=True).start()
        return await asyncio.wrap_future(done)

    def answer_one(self, request: Request) -> Outcome:
        """Send a request and wait for the outcome."""
        assert isinstance(request, Generate)
        started = time.monotonic()
        messages = [_to_payload(message) for message in request.prompt.messages]
        body = self._endpoint.post({"messages": messages, **request.settings.values})
        if isinstance(body, Failure):
            return Failure(
                request_id=request.id, kind=body.kind, message=body.message, attempts=body.attempts
            )
        try:
            choice = body["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError):
            return Failure(
                request_id=request.id,
                kind="server error",
                message=f"unexpected response format: {body!r:.300}",
            )
        usage = body.get("usage") or {}
        return Response(
            request_id=request.id,
            value=text or "",
            finish=OPENAI.classify(choice.get("finish_reason")),
            usage=Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
            if usage
            else None,
            seconds=time.monotonic() - started,
        )


def build_openai_endpoint(model: str, **limits: Any) -> Endpoint:
    """Return the endpoint set by `OPENAI_API_URL` (or `OPENAI_BASE_URL`) and `OPENAI_API_KEY`.

    The URL may be the base URL of the service or its chat completions URL.
    """
    base = (
        os.environ.get("OPENAI_API_URL") or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    )
    key = check_key(os.environ.get("OPENAI_API_KEY", "").strip(), where="environment variable OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"}
    return Endpoint(url=build_chat_url(base), model=model, headers=headers, **limits)


def build_chat_url(base: str) -> str:
    """Return the chat completions URL for a base URL.

    >>> build_chat_url("http://h/v1/"), build_chat_url("http://h/v1/chat/completions")
    ('http://h/v1/chat/completions', 'http://h/v1/chat/completions')
    """
    base = base.rstrip("/")
    return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


def find_missing_setting() -> str:
    """Return a message about the environment variable that a helper with a judge lacks, or an empty string."""
    kind = os.environ.get("API_TYPE", "openai").lower()
    required: Mapping[str, tuple[str, ...]] = {
        "openai": ("OPENAI_API_KEY",),
        "async_openai": ("OPENAI_API_KEY",),
        "azure": ("AZURE_API_KEY", "AZURE_ENDPOINT"),
        "async_azure": ("AZURE_API_KEY", "AZURE_ENDPOINT"),
    }
    for name in required.get(kind, ()):
        if not os.environ.get(name):
            return f"the helper calls a judge, but none is configured: set --judge or {name}"
    return ""


def _to_payload(message: Message) -> dict[str, Any]:
    """Convert a message to the JSON payload of the endpoint."""
    if all(isinstance(part, Text) for part in message.parts):
        return {"role": message.role, "content": message.text}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | Audio | Video):
            url = getattr(part.load, "url", None) or to_data_url(part.load())
            content.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": message.role, "content": content}


def to_data_url(image: Any) -> str:
    """Encode an image as a JPEG data URL."""
    stream = io.BytesIO()
    image.convert("RGB").save(stream, format="JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _format_http_error(error: urllib.error.HTTPError) -> str:
    names = {429: "Rate limit: "}
    return f"{names.get(error.code, '')}HTTP {error.code} {error.reason}"


def _parse_retry_after(header: str | None, default: float) -> float:
    """Return the seconds of a `Retry-After` header, at most 60."""
    try:
        return min(60.0, max(0.0, float(header))) if header is not None else default
    except ValueError:
        return default
