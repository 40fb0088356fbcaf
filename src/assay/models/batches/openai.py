"""OpenAI's batches: upload a file of calls, create a batch from it, download files with answers and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from assay.core.errors import InvalidOption, UserError
from assay.core.ports import Model
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.models.batches.model import BatchModel
from assay.models.batches.service import BatchLine, BatchStatus, LineError, parse_result_line
from assay.models.finish_reasons import GenerationFailed
from assay.models.prices import build_billed_name
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.capabilities.chat_probe import ServerUnreachable, probe_chat
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.errors import BadReply, CallFailed
from assay.models.remote.openai import OpenAIModel, build_identity, build_media_encoding, format_preview
from assay.models.remote.options import Options
from assay.models.remote.output_limits import compute_output_limit
from assay.models.remote.protocol.chat import (
    ParsedReply,
    build_chat_payload,
    build_response,
    parse_chat_reply,
)
from assay.models.remote.protocol.json_writer import write_json
from assay.models.remote.protocol.media import prepare_media

__all__ = ["OpenAIBatches", "batch_gpt4", "openai_model", "parse_result"]

_CALL_PATH = "/v1/chat/completions"
_ENDED_STATES = ("completed", "expired", "cancelled")
_LIST_LIMIT = 100


class OpenAIBatches:
    """Batches of chat completions."""

    max_lines = 50_000
    max_bytes = 100 * 2**20

    def __init__(self, options: Options) -> None:
        self.options = options
        self._media = build_media_encoding(options)
        self._capabilities = ServerCapabilities(long_limit_name=options.is_openai)

    @property
    def name(self) -> str:
        return self.options.model

    @property
    def billed_as(self) -> str:
        return build_billed_name(self.options.address().url, self.options.model)

    def build_identity(self) -> dict[str, str]:
        """Return the identity of the model without batches, because the answers are the same."""
        return build_identity(self.options, "openai chat")

    def find_output_limit(self, request: Generate) -> int | None:
        return compute_output_limit(request.settings, self.options)

    def preview(self, request: Request) -> str:
        return format_preview(request)

    def prepare(self, part: Media) -> None:
        prepare_media(part, self._media)

    def open_endpoint(self) -> Endpoint:
        return self.options.open_endpoint()

    async def probe_settings(self, endpoint: Endpoint) -> None:
        if self.options.probe:
            with suppress(ServerUnreachable, CallFailed, UserError):  # submitting the batch reports it
                self._capabilities = await probe_chat(endpoint, self.options)

    def write_body(self, request: Generate) -> bytes:
        return write_json(build_chat_payload(request, self.options, self._capabilities, self._media))

    def build_response(self, request: Generate, reply: ParsedReply) -> Response:
        usage = None if reply.usage is None else replace(reply.usage, batched=True)
        choice, served = reply.choices[0], reply.served
        return replace(build_response(request, choice, usage, self.options, 0.0, served=served), seconds=None)

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[BatchLine]) -> str:
        content = b"".join(_write_line(line) for line in lines)
        boundary = f"assay-{key}"
        uploaded = await endpoint.post(
            "/files",
            _build_upload(boundary, key, content),
            lambda value: str(value["id"]),
            content_type=f"multipart/form-data; boundary={boundary}",
        )
        order = {
            "input_file_id": uploaded.value,
            "endpoint": _CALL_PATH,
            "completion_window": "24h",
            "metadata": {"assay": key},
        }
        once = replace(endpoint.retry_policy, retries=0)
        made = await endpoint.post("/batches", order, lambda value: str(value["id"]), retry_policy=once)
        return made.value

    async def find_batch(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        listed = await endpoint.get(f"/batches?limit={_LIST_LIMIT}", lambda value: list(value["data"]))
        for batch in listed.value:
            if (batch.get("metadata") or {}).get("assay") == key:
                return str(batch["id"])
        return None

    async def get_status(self, endpoint: Endpoint, batch: str) -> BatchStatus:
        about = (await endpoint.get(f"/batches/{batch}", dict)).value
        if about["status"] == "failed":
            errors = (about.get("errors") or {}).get("data") or ()
            return BatchStatus(
                "failed", "; ".join(str(one.get("message")) for one in errors) or "no reason given"
            )
        counts = about.get("request_counts") or {}
        done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        return BatchStatus("ended" if about["status"] in _ENDED_STATES else "running", done=done)

    async def read_results(
        self, endpoint: Endpoint, batch: str
    ) -> AsyncIterator[tuple[str, ParsedReply | LineError]]:
        about = (await endpoint.get(f"/batches/{batch}", dict)).value
        for file in (about.get("output_file_id"), about.get("error_file_id")):
            if not file:
                continue
            content = await endpoint.get_text(f"/files/{file}/content")
            for line in content.value.splitlines():
                if line.strip():
                    found = parse_result_line(line)
                    if found is not None:
                        yield str(found["custom_id"]), parse_result(found)


def openai_model(
    *, batch_api: bool = False, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> Model:
    """Return a model with OpenAI's protocol that is called per request or, with `batch_api`, in batches.

    Raises:
        InvalidOption: Batches are requested for another API than chat completions.
    """
    if not batch_api:
        return OpenAIModel(rpm=rpm, tpm=tpm, **arguments)
    poll_s = arguments.pop("poll_s", None)
    options = OpenAIModel(rpm=rpm, tpm=tpm, **arguments).options
    if options.api != "chat" or options.is_azure:
        raise InvalidOption(
            "the batch API supports only OpenAI's chat completions",
            where="--batch_api",
            hint="remove api=responses and azure_openai=true",
        )
    return BatchModel(OpenAIBatches(options), poll_s=poll_s)


def batch_gpt4(
    *,
    batch_size: Any = None,
    rpm: Any = None,
    tpm: Any = None,
    model_version: str = "gpt-4o",
    **arguments: Any,
) -> Model:
    """Return OpenAI's batches with lmms-eval's default answer length; ignores arguments without effect."""
    arguments.pop("modality", None)
    if api_url := arguments.pop("api_url", None):
        arguments.setdefault("base_url", api_url)
    given = {"model": model_version, "max_gen_toks": 1024, **arguments}
    return openai_model(batch_api=True, rpm=rpm, tpm=tpm, **given)


def _write_line(line: BatchLine) -> bytes:
    head = json.dumps({"custom_id": line.request_id, "method": "POST", "url": _CALL_PATH})[:-1]
    return head.encode() + b', "body": ' + line.body + b"}\n"


def _build_upload(boundary: str, key: str, content: bytes) -> bytes:
    """Return the multipart form of an upload."""
    purpose = f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    disposition = f'Content-Disposition: form-data; name="file"; filename="{key}.jsonl"'
    head = f"{purpose}--{boundary}\r\n{disposition}\r\nContent-Type: application/jsonl\r\n\r\n"
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def parse_result(found: Any) -> ParsedReply | LineError:
    """Parse a line of a result file."""
    reply, error = found.get("response"), found.get("error")
    if reply is not None and reply.get("status_code") == 200:
        try:
            return parse_chat_reply(reply["body"])
        except GenerationFailed as problem:
            return LineError(problem.kind, str(problem))
        except (BadReply, KeyError, TypeError, ValueError, AttributeError) as problem:
            return LineError("bad reply", f"{type(problem).__name__}: {problem}")
    if error is not None:
        expired = "expired" in str(error.get("code"))
        return LineError("expired" if expired else "server error", str(error.get("message")))
    status = int((reply or {}).get("status_code") or 0)
    error = ((reply or {}).get("body") or {}).get("error") or {}
    kind = "bad request" if 400 <= status < 500 and status not in (408, 409, 429) else "server error"
    return LineError(kind, f"{status}: {error.get('message', error) if isinstance(error, dict) else error}")
