"""OpenAI's batches: a file of calls is uploaded, a batch made of it, its answers and errors are files again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from assay.core.errors import BadOption, UserMistake
from assay.core.messages import Media
from assay.core.ports import Model
from assay.core.requests import Generate, Request
from assay.core.responses import Response
from assay.models.batches.model import BatchModel
from assay.models.batches.service import Line, Refused, Status
from assay.models.prices import billed_name
from assay.models.remote.bulk import write_json
from assay.models.remote.chat import Reading, chat_payload, read_chat, response_of
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import BadReply, NotAnswered
from assay.models.remote.media import prepare
from assay.models.remote.openai import OpenAIModel, identity_of, look_of, preview_of
from assay.models.remote.options import Options
from assay.models.remote.probe import NoServer, look_at_chat
from assay.models.remote.seen import Seen

__all__ = ["OpenAIBatches", "batch_gpt4", "openai_model"]

_CALL = "/v1/chat/completions"
_OVER = ("completed", "expired", "cancelled")
_LISTED = 100


class OpenAIBatches:
    """Batches of chat completions."""

    most_lines = 50_000
    most_bytes = 100 * 2**20

    def __init__(self, options: Options) -> None:
        self.options = options
        self._look = look_of(options)
        self._seen = Seen(long_limit_name=options.is_openai)

    @property
    def name(self) -> str:
        return self.options.model

    @property
    def billed_as(self) -> str:
        return billed_name(self.options.address().url, self.options.model)

    def identity(self) -> dict[str, str]:
        """That of the same model asked one by one: its answers are the same model's."""
        return identity_of(self.options, "openai chat")

    def preview(self, request: Request) -> str:
        return preview_of(request)

    def prepare(self, part: Media) -> None:
        prepare(part, self._look)

    def endpoint(self) -> Endpoint:
        return self.options.endpoint()

    async def learn(self, endpoint: Endpoint) -> None:
        if self.options.probe:
            with suppress(NoServer, NotAnswered, UserMistake):  # whoever hands a batch in hears of it
                self._seen = await look_at_chat(endpoint, self.options)

    def body(self, request: Generate) -> bytes:
        return write_json(chat_payload(request, self.options, self._seen, self._look))

    def response(self, request: Generate, reading: Reading) -> Response:
        usage = None if reading.usage is None else replace(reading.usage, batched=True)
        said, served = reading.said[0], reading.served
        return replace(response_of(request, said, usage, self.options, 0.0, served=served), seconds=None)

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[Line]) -> str:
        content = b"".join(_written(line) for line in lines)
        boundary = f"assay-{key}"
        uploaded = await endpoint.post(
            "/files",
            _form(boundary, key, content),
            lambda value: str(value["id"]),
            content_type=f"multipart/form-data; boundary={boundary}",
        )
        order = {
            "input_file_id": uploaded.value,
            "endpoint": _CALL,
            "completion_window": "24h",
            "metadata": {"assay": key},
        }
        once = replace(endpoint.patience, retries=0)
        made = await endpoint.post("/batches", order, lambda value: str(value["id"]), patience=once)
        return made.value

    async def find(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        listed = await endpoint.get(f"/batches?limit={_LISTED}", lambda value: list(value["data"]))
        for batch in listed.value:
            if (batch.get("metadata") or {}).get("assay") == key:
                return str(batch["id"])
        return None

    async def status(self, endpoint: Endpoint, batch: str) -> Status:
        about = (await endpoint.get(f"/batches/{batch}", dict)).value
        if about["status"] == "failed":
            errors = (about.get("errors") or {}).get("data") or ()
            return Status("failed", "; ".join(str(one.get("message")) for one in errors) or "no reason given")
        counts = about.get("request_counts") or {}
        done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        return Status("ended" if about["status"] in _OVER else "running", done=done)

    async def results(self, endpoint: Endpoint, batch: str) -> AsyncIterator[tuple[str, Reading | Refused]]:
        about = (await endpoint.get(f"/batches/{batch}", dict)).value
        for file in (about.get("output_file_id"), about.get("error_file_id")):
            if not file:
                continue
            content = await endpoint.get_text(f"/files/{file}/content")
            for line in content.value.splitlines():
                if line.strip():
                    found = json.loads(line)
                    yield str(found["custom_id"]), _read(found)


def openai_model(
    *, batch_api: bool = False, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> Model:
    """A model behind OpenAI's protocol: asked one by one, or in batches.

    Raises:
        BadOption: Batches of something else than chat completions.
    """
    if not batch_api:
        return OpenAIModel(rpm=rpm, tpm=tpm, **arguments)
    poll_s = arguments.pop("poll_s", None)
    asked = OpenAIModel(rpm=rpm, tpm=tpm, **arguments)  # it checks the arguments
    options: Options = asked.options
    if options.api != "chat" or options.is_azure:
        raise BadOption(
            "batches are made of chat completions of OpenAI's own protocol",
            where="--batch_api",
            hint="leave out api=responses and azure_openai=true",
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
    """lmms-eval's name for OpenAI's batches, with its length and without arguments that decide nothing here."""
    arguments.pop("modality", None)
    if api_url := arguments.pop("api_url", None):
        arguments.setdefault("base_url", api_url)
    given = {"model": model_version, "max_gen_toks": 1024, **arguments}
    return openai_model(batch_api=True, rpm=rpm, tpm=tpm, **given)


def _written(line: Line) -> bytes:
    head = json.dumps({"custom_id": line.name, "method": "POST", "url": _CALL})[:-1]
    return head.encode() + b', "body": ' + line.body + b"}\n"


def _form(boundary: str, key: str, content: bytes) -> bytes:
    """The two fields of an upload."""
    purpose = f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    disposition = f'Content-Disposition: form-data; name="file"; filename="{key}.jsonl"'
    head = f"{purpose}--{boundary}\r\n{disposition}\r\nContent-Type: application/jsonl\r\n\r\n"
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def _read(found: Any) -> Reading | Refused:
    """What a line of a result file says."""
    reply, error = found.get("response"), found.get("error")
    if reply is not None and reply.get("status_code") == 200:
        try:
            return read_chat(reply["body"])
        except (BadReply, KeyError, TypeError, ValueError, AttributeError) as problem:
            return Refused("bad reply", f"{type(problem).__name__}: {problem}")
    if error is not None:
        expired = "expired" in str(error.get("code"))
        return Refused("expired" if expired else "server error", str(error.get("message")))
    status = int((reply or {}).get("status_code") or 0)
    said = ((reply or {}).get("body") or {}).get("error") or {}
    kind = "bad request" if 400 <= status < 500 and status not in (408, 409, 429) else "server error"
    return Refused(kind, f"{status}: {said.get('message', said) if isinstance(said, dict) else said}")
