"""Judges that helper files reach by the environment: an OpenAI-compatible address and a key, as lmms-eval reads them.

An endpoint is a model of Assay like any other, so what is asked of it is journalled, cached and counted.
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

from assay.core.messages import Message, Text
from assay.core.ports import Traits
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Finish, Outcome, Response, Usage
from assay.core.secrets import know_secret
from assay.models.prices import billed_name

__all__ = ["Endpoint", "EndpointModel", "missing_endpoint", "open_ai_endpoint"]

_FINISHES: Mapping[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "refused"}
_WORTH_ANOTHER_TRY = frozenset((408, 409, 425, 429))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address that answers chat requests, and how patiently to ask it."""

    url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 60.0
    attempts: int = 5
    delay_s: float = 10.0
    in_flight: int = 10

    def post(self, payload: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """The answer as it came; or, after the last attempt, why there is none."""
        failure = Failure(request_id="", kind="bad request", message="it was never asked")
        for attempt in range(1, max(1, self.attempts) + 1):
            wait_s = self.delay_s
            try:
                return self._post({"model": self.model, **payload})
            except urllib.error.HTTPError as error:
                said = error.read(2000).decode("utf-8", "replace")
                kind = (
                    "rate limit"
                    if error.code == 429
                    else "server error"
                    if error.code >= 500
                    else "bad request"
                )
                failure = Failure(
                    request_id="", kind=kind, message=f"{_reason(error)}: {said[:500]}", attempts=attempt
                )
                if kind == "bad request" and error.code not in _WORTH_ANOTHER_TRY:
                    return failure
                wait_s = _wait_of(error.headers.get("Retry-After"), wait_s)
            except TimeoutError:
                message = f"no answer within {self.timeout_s:g} s"
                failure = Failure(request_id="", kind="timeout", message=message, attempts=attempt)
            except urllib.error.URLError as error:
                kind = "timeout" if isinstance(error.reason, TimeoutError) else "connection"
                failure = Failure(request_id="", kind=kind, message=str(error.reason), attempts=attempt)
            except (OSError, ValueError) as error:
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
            content = json.loads(answer.read())
        if not isinstance(content, dict):
            raise ValueError("the answer is not a JSON object")
        return content


class EndpointModel:
    """An endpoint as a model. Its settings go out as they are."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        return self._endpoint.model

    @property
    def billed_as(self) -> str:
        """What the price table calls it."""
        return billed_name(self._endpoint.url, self._endpoint.model)

    @property
    def traits(self) -> Traits:
        abilities = frozenset(("generate", "chat", "image"))
        return Traits(abilities=abilities, window=1, in_flight=self._endpoint.in_flight)  # type: ignore[arg-type]

    async def identify(self) -> Mapping[str, str]:
        return {"model": self._endpoint.model, "url": self._endpoint.url}

    async def open(self) -> None:
        """Nothing to load: the first request connects."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            yield await self._aside(request)

    async def close(self) -> None:
        """Nothing to let go of: what is still on its way belongs to threads that hold nobody up."""

    async def _aside(self, request: Request) -> Outcome:
        """The answer from a thread of its own; a daemon, because a patient request must not keep the process alive."""
        done: Future[Outcome] = Future()

        def ask() -> None:
            try:
                done.set_result(self.answer_one(request))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                done.set_exception(error)

        threading.Thread(target=ask, name="assay-judge-endpoint", daemon=True).start()
        return await asyncio.wrap_future(done)

    def answer_one(self, request: Request) -> Outcome:
        """Ask and wait."""
        assert isinstance(request, Generate)
        started = time.monotonic()
        messages = [_plain(message) for message in request.prompt.messages]
        said = self._endpoint.post({"messages": messages, **request.settings.values})
        if isinstance(said, Failure):
            return Failure(
                request_id=request.id, kind=said.kind, message=said.message, attempts=said.attempts
            )
        try:
            choice = said["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError):
            return Failure(
                request_id=request.id, kind="server error", message=f"not a chat answer: {said!r:.300}"
            )
        usage = said.get("usage") or {}
        return Response(
            request_id=request.id,
            value=text or "",
            finish=_FINISHES.get(choice.get("finish_reason") or "", ""),
            usage=Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
            if usage
            else None,
            seconds=time.monotonic() - started,
        )


def open_ai_endpoint(model: str, **patience: Any) -> Endpoint:
    """The one `OPENAI_API_URL` (or `OPENAI_BASE_URL`) and `OPENAI_API_KEY` lead to.

    The address may be that of the service or, as helpers that post by themselves want it, of its chat completions.
    """
    base = (
        os.environ.get("OPENAI_API_URL") or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    )
    headers = {"Authorization": f"Bearer {know_secret(os.environ.get('OPENAI_API_KEY', ''))}"}
    return Endpoint(url=chat_url(base), model=model, headers=headers, **patience)


def chat_url(base: str) -> str:
    """Where chat requests go.

    >>> chat_url("http://h/v1/"), chat_url("http://h/v1/chat/completions")
    ('http://h/v1/chat/completions', 'http://h/v1/chat/completions')
    """
    base = base.rstrip("/")
    return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


def missing_endpoint() -> str:
    """What the environment lacks for a helper that asks a judge; empty when it lacks nothing."""
    kind = os.environ.get("API_TYPE", "openai").lower()
    wanted: Mapping[str, tuple[str, ...]] = {
        "openai": ("OPENAI_API_KEY",),
        "async_openai": ("OPENAI_API_KEY",),
        "azure": ("AZURE_API_KEY", "AZURE_ENDPOINT"),
        "async_azure": ("AZURE_API_KEY", "AZURE_ENDPOINT"),
    }
    for name in wanted.get(kind, ()):
        if not os.environ.get(name):
            return f"its helper asks a judge, and none is set up: name one with --judge, or set {name}"
    return ""


def _plain(message: Message) -> dict[str, Any]:
    """A message as the endpoint reads it."""
    if all(isinstance(part, Text) for part in message.parts):
        return {"role": message.role, "content": message.text}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        else:
            url = getattr(part.load, "url", None) or data_url(part.load())
            content.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": message.role, "content": content}


def data_url(picture: Any) -> str:
    """A picture as a JPEG inside an address."""
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, format="JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _reason(error: urllib.error.HTTPError) -> str:
    names = {429: "Rate limit: "}
    return f"{names.get(error.code, '')}HTTP {error.code} {error.reason}"


def _wait_of(said: str | None, otherwise: float) -> float:
    """Seconds the server asks to wait, where it says so in seconds; never more than a minute."""
    try:
        return min(60.0, max(0.0, float(said))) if said is not None else otherwise
    except ValueError:
        return otherwise
