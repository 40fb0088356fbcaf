"""A plugin model that asks an HTTP server, one request a call, and turns whatever goes wrong into a failure.

It tries once: what failed is asked again when the command is repeated, so a test sees every fault.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from assay.core.ports import Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response


class NoAnswer(Exception):
    """The server said something, and it is not an answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ServedModel:
    """Answers are what the server says to the prompt and the number of the repeat."""

    def __init__(self, port: int, timeout_s: float = 2.0, in_flight: int = 8) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._in_flight = in_flight

    @property
    def name(self) -> str:
        return "served"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=frozenset({"generate", "chat"}), in_flight=self._in_flight)

    async def identify(self) -> Mapping[str, str]:
        return {"name": "served", "revision": "1"}

    async def open(self) -> None:
        pass

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            yield await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        pass

    def _ask(self, request: Request) -> Outcome:
        assert isinstance(request, Generate)
        try:
            text, finish = self._post({"prompt": request.prompt.text, "repeat": request.repeat})
        except NoAnswer as error:
            return Failure(request_id=request.id, kind=error.kind, message=str(error))
        except TimeoutError:
            return Failure(request_id=request.id, kind="timeout", message=f"silent for {self._timeout_s} s")
        except (OSError, http.client.HTTPException) as error:
            return Failure(
                request_id=request.id, kind="connection", message=f"{type(error).__name__}: {error}"
            )
        return Response(request_id=request.id, value=text, finish=finish)

    def _post(self, payload: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request("POST", "/", json.dumps(payload), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        if reply.status != 200:
            kind = "rate limit" if reply.status == 429 else "server error"
            raise NoAnswer(kind, f"{reply.status}: {body[:80].decode('utf-8', 'replace')}")
        if reply.headers.get_content_type() != "application/json":
            raise NoAnswer("bad reply", f"a {reply.headers.get_content_type()} is no answer")
        try:
            (choice,) = json.loads(body)["choices"]
            return choice["text"], choice["finish_reason"]
        except (ValueError, KeyError, TypeError) as error:
            raise NoAnswer("bad reply", f"{type(error).__name__}: {error}") from None
