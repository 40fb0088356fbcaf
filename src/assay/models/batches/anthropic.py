"""Anthropic's message batches: submit a list of calls, read the results as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from assay.core.ports import Model
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.models.batches.model import BatchModel
from assay.models.batches.service import BatchLine, BatchStatus, LineError, parse_result_line
from assay.models.finish_reasons import GenerationFailed
from assay.models.hosted.anthropic import AnthropicModel, parse_message
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.errors import BadReply
from assay.models.remote.protocol.chat import ParsedReply, build_response

__all__ = ["AnthropicBatches", "anthropic_model", "parse_result"]

_PATH = "/messages/batches"
_LIST_LIMIT = 100
_MAX_CLOCK_SKEW_S = 300.0
"""Largest difference between the service's clock and the local one."""

_PERMANENT_ERRORS = ("invalid_request_error", "not_found_error", "permission_error", "request_too_large")


class AnthropicBatches:
    """Batches of Anthropic messages."""

    max_lines = 100_000
    max_bytes = 128 * 2**20

    def __init__(self, model: AnthropicModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def billed_as(self) -> str:
        return self._model.billed_as

    def build_identity(self) -> dict[str, str]:
        """Return the identity of the model without batches, because the answers are the same."""
        return self._model.build_identity()

    def find_output_limit(self, request: Generate) -> int | None:
        return self._model.find_output_limit(request)

    def preview(self, request: Request) -> str:
        return self._model.preview(request)

    def prepare(self, part: Media) -> None:
        self._model.prepare(part)

    def open_endpoint(self) -> Endpoint:
        return self._model.open_endpoint()

    async def probe_settings(self, endpoint: Endpoint) -> None:
        await self._model.probe_settings(endpoint)

    def write_body(self, request: Generate) -> bytes:
        return self._model.write_body(request)

    def build_response(self, request: Generate, reply: ParsedReply) -> Response:
        usage = None if reply.usage is None else replace(reply.usage, batched=True)
        options, served = self._model.options, reply.served
        response = build_response(request, reply.choices[0], usage, options, 0.0, served=served)
        return replace(response, seconds=None)

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[BatchLine]) -> str:
        entries = b",".join(
            b'{"custom_id": ' + json.dumps(line.request_id).encode() + b', "params": ' + line.body + b"}"
            for line in lines
        )
        once = replace(endpoint.retry_policy, retries=0)
        order = b'{"requests": [' + entries + b"]}"
        return (await endpoint.post(_PATH, order, lambda value: str(value["id"]), retry_policy=once)).value

    async def find_batch(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        """Find a batch by size and time: the service stores no client-side key. Skips batches that are already known."""
        listed = await endpoint.get(f"{_PATH}?limit={_LIST_LIMIT}", lambda value: list(value["data"]))
        for batch in reversed(listed.value):
            made = datetime.fromisoformat(str(batch["created_at"])).timestamp()
            held = sum(int(number) for number in batch["request_counts"].values())
            if batch["id"] not in known and held == count and made > since - _MAX_CLOCK_SKEW_S:
                return str(batch["id"])
        return None

    async def get_status(self, endpoint: Endpoint, batch: str) -> BatchStatus:
        about = (await endpoint.get(f"{_PATH}/{batch}", dict)).value
        counts = about.get("request_counts") or {}
        done = sum(int(count) for name, count in counts.items() if name != "processing")
        return BatchStatus("ended" if about["processing_status"] == "ended" else "running", done=done)

    async def read_results(
        self, endpoint: Endpoint, batch: str
    ) -> AsyncIterator[tuple[str, ParsedReply | LineError]]:
        content = await endpoint.get_text(f"{_PATH}/{batch}/results")
        for line in content.value.splitlines():
            if line.strip():
                found = parse_result_line(line)
                if found is not None:
                    yield str(found["custom_id"]), parse_result(found["result"])


def anthropic_model(
    *, batch_api: bool = False, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> Model:
    """Return a Claude model that is called per request or, with `batch_api`, in batches."""
    poll_s = arguments.pop("poll_s", None) if batch_api else None
    model = AnthropicModel(rpm=rpm, tpm=tpm, **arguments)
    return BatchModel(AnthropicBatches(model), poll_s=poll_s) if batch_api else model


def parse_result(result: Any) -> ParsedReply | LineError:
    """Parse a line of the results."""
    match result["type"]:
        case "succeeded":
            try:
                return parse_message(result["message"])
            except GenerationFailed as problem:
                return LineError(problem.kind, str(problem))
            except (BadReply, KeyError, TypeError, ValueError, AttributeError) as problem:
                return LineError("bad reply", f"{type(problem).__name__}: {problem}")
        case "errored":
            error = result.get("error") or {}
            error = error.get("error") or error
            kind = "bad request" if error.get("type") in _PERMANENT_ERRORS else "server error"
            return LineError(kind, str(error.get("message")))
        case "expired":
            return LineError("expired", "the batch expired before this request was processed")
        case other:
            return LineError("canceled", f"the batch ended before this request was processed: {other}")
