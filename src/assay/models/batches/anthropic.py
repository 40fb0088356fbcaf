"""Anthropic's message batches: a list of calls is handed in, results are one file of lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from assay.core.messages import Media
from assay.core.ports import Model
from assay.core.requests import Generate, Request
from assay.core.responses import Response
from assay.models.anthropic import AnthropicModel
from assay.models.anthropic.messages import read_message
from assay.models.batches.model import BatchModel
from assay.models.batches.service import Line, Refused, Status
from assay.models.remote.chat import Reading, response_of
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import BadReply

__all__ = ["AnthropicBatches", "anthropic_model"]

_PATH = "/messages/batches"
_LISTED = 100
_CLOCKS_S = 300.0
"""How far the service's clock may be from ours."""

_BAD = ("invalid_request_error", "not_found_error", "permission_error", "request_too_large")


class AnthropicBatches:
    """Batches of messages."""

    most_lines = 100_000
    most_bytes = 128 * 2**20

    def __init__(self, asked: AnthropicModel) -> None:
        self._asked = asked

    @property
    def name(self) -> str:
        return self._asked.name

    @property
    def billed_as(self) -> str:
        return self._asked.billed_as

    def identity(self) -> dict[str, str]:
        """That of the same model asked one by one: its answers are the same model's."""
        return self._asked.identity()

    def preview(self, request: Request) -> str:
        return self._asked.preview(request)

    def prepare(self, part: Media) -> None:
        self._asked.prepare(part)

    def endpoint(self) -> Endpoint:
        return self._asked.endpoint()

    async def learn(self, endpoint: Endpoint) -> None:
        await self._asked.learn(endpoint)

    def body(self, request: Generate) -> bytes:
        return self._asked.written(request)

    def response(self, request: Generate, reading: Reading) -> Response:
        usage = None if reading.usage is None else replace(reading.usage, batched=True)
        options, served = self._asked.options, reading.served
        response = response_of(request, reading.said[0], usage, options, 0.0, served=served)
        return replace(response, seconds=None)

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[Line]) -> str:
        entries = b",".join(
            b'{"custom_id": ' + json.dumps(line.name).encode() + b', "params": ' + line.body + b"}"
            for line in lines
        )
        once = replace(endpoint.patience, retries=0)
        order = b'{"requests": [' + entries + b"]}"
        return (await endpoint.post(_PATH, order, lambda value: str(value["id"]), patience=once)).value

    async def find(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        """Batches have no names of ours here: one of the same size, made at that time, that nobody else wrote down."""
        listed = await endpoint.get(f"{_PATH}?limit={_LISTED}", lambda value: list(value["data"]))
        for batch in reversed(listed.value):
            made = datetime.fromisoformat(str(batch["created_at"])).timestamp()
            held = sum(int(number) for number in batch["request_counts"].values())
            if batch["id"] not in known and held == count and made > since - _CLOCKS_S:
                return str(batch["id"])
        return None

    async def status(self, endpoint: Endpoint, batch: str) -> Status:
        about = (await endpoint.get(f"{_PATH}/{batch}", dict)).value
        counts = about.get("request_counts") or {}
        done = sum(int(count) for name, count in counts.items() if name != "processing")
        return Status("ended" if about["processing_status"] == "ended" else "running", done=done)

    async def results(self, endpoint: Endpoint, batch: str) -> AsyncIterator[tuple[str, Reading | Refused]]:
        content = await endpoint.get_text(f"{_PATH}/{batch}/results")
        for line in content.value.splitlines():
            if line.strip():
                found = json.loads(line)
                yield str(found["custom_id"]), _read(found["result"])


def anthropic_model(
    *, batch_api: bool = False, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> Model:
    """Claude: asked one by one, or in batches."""
    poll_s = arguments.pop("poll_s", None) if batch_api else None
    asked = AnthropicModel(rpm=rpm, tpm=tpm, **arguments)
    return BatchModel(AnthropicBatches(asked), poll_s=poll_s) if batch_api else asked


def _read(result: Any) -> Reading | Refused:
    """What a line of the results says."""
    match result["type"]:
        case "succeeded":
            try:
                return read_message(result["message"])
            except (BadReply, KeyError, TypeError, ValueError, AttributeError) as problem:
                return Refused("bad reply", f"{type(problem).__name__}: {problem}")
        case "errored":
            error = result.get("error") or {}
            error = error.get("error") or error
            kind = "bad request" if error.get("type") in _BAD else "server error"
            return Refused(kind, str(error.get("message")))
        case "expired":
            return Refused("expired", "the batch was not done in time")
        case other:
            return Refused("canceled", f"the batch was ended before: {other}")
