"""Records as rows and back: the one place that knows the order of columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from assay.core.codec import decode, encode, to_plain
from assay.core.messages import Prompt, Text, Video
from assay.core.requests import Generate, Likelihood, Request
from assay.core.responses import LogProbability, Response, Usage
from assay.core.verdicts import Estimate, Score, Unscored, Verdict

__all__ = [
    "INSERT_RESPONSE",
    "SELECT_RESPONSE",
    "prompt_text",
    "request_row",
    "response_from_row",
    "response_row",
    "storable",
]

_RESPONSE_COLUMNS = (
    "fingerprint, text, logprob, greedy, finish, reasoning, input_tokens, output_tokens, seconds, source, at"
)
INSERT_RESPONSE = (
    f"INSERT INTO responses ({_RESPONSE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)"
    " ON CONFLICT(fingerprint) DO NOTHING"
)
SELECT_RESPONSE = f"SELECT {_RESPONSE_COLUMNS} FROM responses"


def response_row(fingerprint: str, response: Response, *, source: str, at: float) -> tuple[Any, ...]:
    """A response as a row."""
    value, usage = response.value, response.usage
    text, logprob, greedy = (
        (_exact(value), None, None) if isinstance(value, str) else (None, value.total, int(value.greedy))
    )
    reasoning = None if response.reasoning is None else _exact(response.reasoning)
    tokens = (int(usage.input_tokens), int(usage.output_tokens)) if usage else (None, None)
    return (
        fingerprint, text, logprob, greedy, response.finish or "", reasoning, *tokens, response.seconds, source, at,
    )  # fmt: skip


def response_from_row(row: tuple[Any, ...]) -> Response:
    """A row as a response, named by its fingerprint."""
    fingerprint, text, logprob, greedy, finish, reasoning, read, written, seconds, _, _ = row
    return Response(
        request_id=fingerprint,
        value=response_value(text, logprob, greedy),
        finish=finish,
        usage=None if read is None else Usage(read, written),
        seconds=seconds,
        reasoning=None if reasoning is None else _text(reasoning),
    )


def response_value(
    text: str | bytes | None, logprob: float | None, greedy: int | None
) -> str | LogProbability:
    """What the columns of a response say; SQLite keeps NaN as NULL."""
    if text is not None:
        return _text(text)
    return LogProbability(math.nan if logprob is None else logprob, bool(greedy))


def _exact(text: str) -> str | bytes:
    """A response as SQLite can hold it: half characters are not UTF-8, so they make it bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _text(kept: str | bytes) -> str:
    return kept.decode("utf-8", "surrogatepass") if isinstance(kept, bytes) else kept


def request_row(request: Request, fingerprint: str) -> tuple[Any, ...]:
    """A request as a row."""
    match request:
        case Generate():
            kind, argument = "generate", request.settings.digest
        case Likelihood():
            kind, argument = "likelihood", request.continuation
        case _:
            kind, argument = "rolling", ""
    return (
        request.task, request.document, request.index, request.repeat, kind, request.prompt.digest, storable(argument),
        fingerprint,
    )  # fmt: skip


def prompt_text(prompt: Prompt) -> str:
    """A prompt as text: itself when it is plain, else JSON messages with media by hash."""
    messages = prompt.messages
    if not prompt.chat and len(messages) == 1 and all(isinstance(part, Text) for part in messages[0].parts):
        return storable(messages[0].text)
    shown = [
        {"role": message.role, "content": [_part(part) for part in message.parts]} for message in messages
    ]
    return _storable_json(json.dumps({"messages": shown, "chat": prompt.chat}, ensure_ascii=False))


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    shown = {"type": type(part).__name__.lower(), "digest": part.digest, "source": part.source}
    if isinstance(part, Video) and (part.start_s is not None or part.end_s is not None):
        shown |= {"start_s": part.start_s, "end_s": part.end_s}
    return shown


_to_json = json.JSONEncoder(ensure_ascii=False).encode
"""One encoder for all rows: `json.dumps` with options makes a new one each time."""


def fields_text(fields: Mapping[str, Any]) -> str:
    """A document's fields as JSON; media are described, not held."""
    described = getattr(fields, "described", None)  # rows with media say what is written down of them
    if described is not None:
        fields = described()
    try:
        return _storable_json(_to_json(fields))
    except (TypeError, ValueError):
        return _storable_json(_to_json(to_plain(fields)))


def storable(text: str) -> str:
    """A text as SQLite can hold it: half characters, which are not Unicode, become question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _storable_json(text: str) -> str:
    """The same JSON, with half characters escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text))
    return text


def verdict_row(task: str, verdict: Verdict) -> tuple[Any, ...]:
    """A verdict as a row. Floats and integers (of 64 bits) are kept as such, everything else as encoded text."""
    head = (task, verdict.document, verdict.pipeline, verdict.metric)
    if isinstance(verdict, Score):
        value: Any = verdict.value
        plain = (type(value) is float and value == value) or (
            type(value) is int and -(2**63) <= value < 2**63
        )
        return (*head, "score", value if plain else _storable_json(encode(value)), storable(verdict.why))
    if isinstance(verdict, Unscored):
        return (*head, "unscored", None, storable(verdict.why))
    return (*head, "evidence", _storable_json(encode(verdict.value)), "")


def estimate_text(estimate: Estimate) -> str:
    """An estimate as text; a value of a kind that cannot be kept is described."""
    content = asdict(estimate)
    try:
        return _storable_json(encode(content))
    except TypeError:
        return _storable_json(encode(to_plain(content)))


def estimate_from_text(content: str) -> Estimate:
    """The estimate of a text that `estimate_text` wrote."""
    return Estimate(**decode(content))


def verdict_value(value: Any) -> Any:
    """The value of a verdict row, as scoring made it."""
    return decode(value) if isinstance(value, str) else value
