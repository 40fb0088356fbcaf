"""Converts records to rows and back."""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from math import isfinite
from typing import Any, TypeVar
from zlib import crc32

from assay.core.records.codec import decode, encode, to_plain
from assay.core.records.messages import Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability, Response, Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.core.records.verdicts import Answer, Estimate, RepeatScores, Score, Unscored, Verdict
from assay.core.secrets import redact
from assay.store.integrity.row_checksums import compute_checksum, compute_row_checksum

__all__ = [
    "DELETE_ANSWERED",
    "DELETE_RESPONSE",
    "INSERT_ANSWERED",
    "INSERT_JUDGE_REQUEST",
    "INSERT_RESPONSE",
    "INSERT_TRUNCATION",
    "REPLACE_RESPONSE",
    "SELECT_ANSWERED",
    "SELECT_RESPONSE",
    "add_checksum",
    "build_answered_rows",
    "build_fact_row",
    "build_filter_step_rows",
    "build_judge_request_row",
    "build_repeat_rows",
    "build_response_row",
    "decode_repeats",
    "decode_calls",
    "encode_answers",
    "encode_calls",
    "encode_fields",
    "encode_prompt",
    "encode_requests",
    "encode_target",
    "encode_verdicts",
    "get_request_options",
    "group_by_document",
    "replace_surrogates",
    "response_from_answered",
    "response_from_row",
]

Judged = TypeVar("Judged", bound=Answer | Verdict)
INSERT_ANSWERED = "INSERT INTO answered VALUES (?,?,?,?,?,?,?,?,?)"
SELECT_ANSWERED = "SELECT fingerprint, text, logprob, greedy, source, at, details, crc FROM main.answered"
INSERT_JUDGE_REQUEST = "INSERT OR IGNORE INTO judge_requests VALUES (?,?,?,?,?,?,?,?,?)"
DELETE_ANSWERED = "DELETE FROM answered WHERE fingerprint = ?"
_RESPONSE_COLUMNS = "fingerprint, text, logprob, greedy, finish, reasoning, input_tokens, output_tokens, tool_calls, seconds, source, at, crc"
_INSERT = f"INTO responses ({_RESPONSE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
INSERT_RESPONSE = f"INSERT {_INSERT} ON CONFLICT(fingerprint) DO NOTHING"
REPLACE_RESPONSE = f"INSERT OR REPLACE {_INSERT}"
INSERT_TRUNCATION = "INSERT OR REPLACE INTO truncations VALUES (?,?)"
DELETE_RESPONSE = "DELETE FROM responses WHERE fingerprint = ?"
SELECT_RESPONSE = f"SELECT {_RESPONSE_COLUMNS} FROM responses"


def add_checksum(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a journal row: the columns in the order of `CHECKED_COLUMNS`, and their checksum."""
    return (*columns, compute_row_checksum(*columns))


def build_fact_row(key: str, value: Any) -> tuple[Any, ...]:
    """Return the row of a fact, with secrets redacted."""
    text = redact(json.dumps(value, ensure_ascii=False, default=str))
    return add_checksum((key, _escape_surrogates(text)))


def build_response_row(fingerprint: str, response: Response, *, source: str, at: float) -> tuple[Any, ...]:
    """Return the cache row of a response."""
    value, usage = response.value, response.usage
    text, logprob, greedy = (
        (_encode_text(value), None, None)
        if isinstance(value, str)
        else (None, value.total, int(value.greedy))
    )
    if logprob != logprob:
        logprob = None  # SQLite stores NaN as NULL
    reasoning = None if response.reasoning is None else _encode_text(response.reasoning)
    tokens = (int(usage.input_tokens), int(usage.output_tokens)) if usage else (None, None)
    calls = _escape_surrogates(to_json(encode_calls(response.tool_calls))) if response.tool_calls else None
    checked = (fingerprint, text, logprob, greedy, response.finish or "", reasoning, *tokens, calls)
    return (*checked, response.seconds, source, at, compute_checksum(*checked))


def response_from_row(row: tuple[Any, ...]) -> Response:
    """Return the response of a cache row; its request id is the fingerprint."""
    fingerprint, text, logprob, greedy, finish, reasoning, read, written, calls, seconds, *_ = row
    return Response(
        request_id=fingerprint,
        value=decode_response_value(text, logprob, greedy),
        finish=finish,
        usage=None if read is None else Usage(read, written),
        seconds=seconds,
        reasoning=None if reasoning is None else _decode_text(reasoning),
        tool_calls=() if calls is None else decode_calls(json.loads(calls)),
    )


def encode_calls(calls: Sequence[ToolCall]) -> list[dict[str, str]]:
    """Return tool calls as plain JSON: id (if there is one), name, and the arguments as text."""
    return [
        {**({"id": call.id} if call.id else {}), "name": call.name, "arguments": call.arguments}
        for call in calls
    ]


def decode_calls(stored: Sequence[Mapping[str, str]]) -> tuple[ToolCall, ...]:
    """Return the tool calls of `encode_calls`."""
    return tuple([ToolCall(call["name"], call["arguments"], call.get("id", "")) for call in stored])


def decode_response_value(
    text: str | bytes | None, logprob: float | None, greedy: int | None
) -> str | LogProbability:
    """Return the value of a response from its columns; NULL is NaN."""
    if text is not None:
        return _decode_text(text)
    return LogProbability(math.nan if logprob is None else logprob, bool(greedy))


def _encode_text(text: str) -> str | bytes:
    """Return a text as SQLite can store it without loss: as bytes if it contains lone surrogates."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _decode_text(stored: str | bytes) -> str:
    return stored.decode("utf-8", "surrogatepass") if isinstance(stored, bytes) else stored


def build_answered_rows(
    responses: Iterable[tuple[int, str, Response, str]], *, source: str, at: float
) -> list[tuple[Any, ...]]:
    """Return the journal rows of responses, given as (row number, fingerprint, response, server identity).

    Details share one column, because most responses have none.
    """
    shared = f"{source}\0{at}"
    built: list[tuple[Any, ...]] = []
    for number, fingerprint, response, served in responses:
        value, details = response.value, _encode_details(response, served)
        if not isinstance(value, str):
            total = value.total if value.total == value.total else None  # SQLite stores NaN as NULL
            greedy = int(value.greedy)
            crc = crc32(f"{fingerprint}\0None\0{total}\0{greedy}\0{shared}\0{details}".encode())
            built.append((number, fingerprint, None, total, greedy, source, at, details, crc))
            continue
        text = value if value.isascii() else _encode_text(value)
        if type(text) is bytes:
            crc = compute_row_checksum(fingerprint, text, None, None, source, at, details)
        else:
            crc = crc32(f"{fingerprint}\0{text!s}\0None\0None\0{shared}\0{details}".encode())
        built.append((number, fingerprint, text, None, None, source, at, details, crc))
    return built


def response_from_answered(row: tuple[Any, ...]) -> Response:
    """Return the response of a journal row; its request id is the fingerprint."""
    fingerprint, text, logprob, greedy, _, _, details, _ = row
    value = decode_response_value(text, logprob, greedy)
    if details is None:
        return Response(request_id=fingerprint, value=value)
    known = json.loads(details)
    return Response(
        request_id=fingerprint,
        value=value,
        finish=known.get("finish", ""),
        usage=_decode_usage(known),
        seconds=known.get("seconds"),
        reasoning=known.get("reasoning"),
        served=known.get("served", ""),
        tool_calls=decode_calls(known.get("tool_calls", ())),
    )


def _decode_usage(known: Mapping[str, Any]) -> Usage | None:
    read = known.get("input_tokens")
    if read is None:
        return None
    cached, batched = known.get("cached_tokens", 0), known.get("batched", False)
    return Usage(
        read,
        known.get("output_tokens", 0),
        cached,
        batched,
        reasoning_tokens=known.get("reasoning_tokens", 0),
        truncated_tokens=known.get("truncated_tokens", 0),
        cost_usd=known.get("cost_usd"),
    )


def _encode_details(response: Response, served: str) -> str | None:
    """Return the details of a response (all but its value) as JSON, or None."""
    usage = response.usage
    has_only_finish = usage is None and response.seconds is None and response.reasoning is None
    if has_only_finish and not served and not response.tool_calls:
        return _encode_finish(response.finish) if response.finish else None
    known: dict[str, Any] = {
        "finish": response.finish or None,
        "input_tokens": None if usage is None else int(usage.input_tokens),
        "output_tokens": None if usage is None else int(usage.output_tokens),
        "seconds": response.seconds,
        "reasoning": response.reasoning,
        "served": served or None,
    }
    if usage is not None and (usage.cached_tokens or usage.batched or usage.cost_usd is not None):
        known["cached_tokens"] = int(usage.cached_tokens) or None
        known["batched"] = usage.batched or None
        known["cost_usd"] = usage.cost_usd
    if usage is not None and usage.reasoning_tokens:
        known["reasoning_tokens"] = int(usage.reasoning_tokens)
    if usage is not None and usage.truncated_tokens:
        known["truncated_tokens"] = int(usage.truncated_tokens)
    if response.tool_calls:
        known["tool_calls"] = encode_calls(response.tool_calls)
    return _escape_surrogates(
        _to_compact_json({key: value for key, value in known.items() if value is not None})
    )


@lru_cache(maxsize=64)
def _encode_finish(finish: str) -> str:
    """Return the details of a response that has no others."""
    return _escape_surrogates(_to_compact_json({"finish": finish}))


def encode_requests(
    requests: Sequence[Request],
    fingerprints: Sequence[str],
    prompt_fields: Mapping[str, Any] | None = None,
    settings_keys: Mapping[str, str] | None = None,
) -> str:
    """Return the requests of a document as JSON: each prompt once, then [number, repeat, kind, prompt, argument, fingerprint].

    A request with tools or a response format has a seventh item: its index in `options`, where each combination is once.
    `prompt_fields`: the document after the prompt was built, if the task's code changed it. `settings_keys`: the texts that
    stand for the digests of settings. Readers look for `"requests": ` with its space.
    """
    if prompt_fields is not None:
        text = encode_requests(requests, fingerprints, None, settings_keys)
        return f'{text[:-1]},"prompt_fields":{encode_fields(prompt_fields)}}}'
    if len(requests) == 1 and type(request := requests[0]) is Generate and not _has_options(request):
        prompt = _quote(encode_prompt(request.prompt))
        digest = request.settings.digest
        key = digest if settings_keys is None else settings_keys[digest]
        text = f'{{"prompts":[{prompt}],"requests": [[{request.index},{request.repeat},"generate",0,"{key}","{fingerprints[0]}"]]}}'
        return text if text.isascii() else replace_surrogates(text)
    prompts: list[str] = []
    prompt_indices: dict[str, int] = {}
    encoded = []
    options: dict[str, int] = {}
    last, index = None, 0
    for request, fingerprint in zip(requests, fingerprints, strict=True):
        if request.prompt is not last:
            last = request.prompt
            index = prompt_indices.setdefault(last.digest, len(prompts))
            if index == len(prompts):
                prompts.append(_quote(encode_prompt(last)))
        if isinstance(request, Likelihood):
            fields = f'"likelihood",{index},{_quote(request.continuation)}'
        elif isinstance(request, Generate):
            digest = request.settings.digest
            fields = f'"generate",{index},"{digest if settings_keys is None else settings_keys[digest]}"'
        else:
            fields = f'"rolling",{index},""'
        more = ""
        if type(request) is Generate and _has_options(request):
            more = f",{options.setdefault(_encode_options(request), len(options))}"
        encoded.append(f'[{request.index},{request.repeat},{fields},"{fingerprint}"{more}]')
    shared = f',"options":[{",".join(options)}]' if options else ""
    return replace_surrogates(
        f'{{"prompts":[{",".join(prompts)}],"requests": [{",".join(encoded)}]{shared}}}'
    )


def _has_options(request: Generate) -> bool:
    return request.tools is not None or request.response_format is not None


def _encode_options(request: Generate) -> str:
    """Return the tools and the response format of a request as JSON."""
    shown: dict[str, Any] = {}
    if request.tools is not None:
        shown["tools"] = request.tools.to_json()
    if request.response_format is not None:
        shown["response_format"] = request.response_format.to_json()
    return _escape_surrogates(to_json(to_plain(shown)))


def get_request_options(content: Mapping[str, Any], request: Sequence[Any]) -> dict[str, Any]:
    """Return the tools and the response format of a stored request, as JSON; empty if it has none."""
    return dict(content["options"][request[6]]) if len(request) > 6 else {}


def build_judge_request_row(request: Generate, fingerprint: str, judge: str) -> tuple[Any, ...]:
    """Return the row of a judge request."""
    place = (request.task, request.document, judge, fingerprint, request.index, request.repeat)
    return add_checksum((*place, encode_prompt(request.prompt), request.settings.digest))


def encode_prompt(prompt: Prompt) -> str:
    """Return a prompt as text: plain text as it is, else JSON messages with media by hash."""
    plain, messages = prompt.plain, prompt.messages
    if plain is not None:
        return plain if plain.isascii() else replace_surrogates(plain)
    if not prompt.chat and len(messages) == 1 and all(isinstance(part, Text) for part in messages[0].parts):
        return replace_surrogates(messages[0].text)
    shown = [
        {"role": message.role, "content": [_encode_part(part) for part in message.parts]}
        for message in messages
    ]
    return _escape_surrogates(json.dumps({"messages": shown, "chat": prompt.chat}, ensure_ascii=False))


def _encode_part(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", **encode_calls([part])[0]}
    if isinstance(part, ToolResult):
        return {
            "type": "tool_result",
            "call_id": part.call_id,
            "name": part.name,
            "content": part.content,
        }
    shown = {"type": type(part).__name__.lower(), "digest": part.digest, "source": part.source}
    if isinstance(part, Video) and (part.start_s is not None or part.end_s is not None):
        shown |= {"start_s": part.start_s, "end_s": part.end_s}
    return shown


def _build_json_writer(after_key: str = ": ", after_item: str = ", ") -> Callable[[Any], str]:
    """Return a faster `json.dumps(value, ensure_ascii=False)` for small values."""
    make = getattr(json.encoder, "c_make_encoder", None)
    plain = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(after_item, after_key))
    if make is None:  # Python without the C accelerator
        return plain.encode
    chunks = make(
        None, plain.default, json.encoder.encode_basestring, None, after_key, after_item, False, False, True
    )
    return lambda value: "".join(chunks(value, 0))


to_json = _build_json_writer()
"""Encode a JSON-like value."""

_to_compact_json = _build_json_writer(":", ",")


_scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def parse_json(text: str) -> Any:
    """Decode a text written by this module."""
    return _scan_json(text, 0)[0]


_quote: Callable[[str], str] = json.encoder.encode_basestring
"""Encode a text as a JSON string."""


def encode_target(target: Any) -> str:
    """Return the target of a document as JSON."""
    if type(target) is str:
        text = f'{{"target": {_quote(target)}}}'
        return text if text.isascii() else _escape_surrogates(text)
    return encode_fields({"target": target})


def encode_fields(fields: Mapping[str, Any]) -> str:
    """Return the fields of a document as JSON; media are summarised."""
    if type(fields) is not dict:
        describe = getattr(fields, "describe", None)  # rows with media provide a summary to store
        if describe is not None:
            fields = describe()
    try:
        text = to_json(fields)
    except (TypeError, ValueError, RecursionError):
        text = to_json(to_plain(fields))
    return text if text.isascii() else _escape_surrogates(text)


def encode_answers(answers: Sequence[Answer]) -> str:
    """Return the answers of a document as JSON: pipeline -> one value per request."""
    if len(answers) == 1:
        values = answers[0].values
        if len(values) == 1 and type(value := values[0]) is str:  # the common case
            text = f"{{{_quote(answers[0].pipeline)}:[{_quote(value)}]}}"
            return text if text.isascii() else _escape_surrogates(text)
    return encode_fields({answer.pipeline: answer.values for answer in answers})


def build_filter_step_rows(first: int, answers: Mapping[int, Sequence[Answer]]) -> list[tuple[Any, ...]]:
    """Return rows with the output of each filter, for documents that store it; `first` is the first row of the task."""
    return [
        add_checksum(
            (first + document, encode_fields({one.pipeline: one.steps for one in listed if one.steps}))
        )
        for document, listed in answers.items()
        if any(one.steps for one in listed)
    ]


def group_by_document(records: Iterable[Judged]) -> dict[int, list[Judged]]:
    """Group answers or verdicts by document."""
    found: dict[int, list[Judged]] = {}
    for record in records:
        document = record.document
        if document in found:
            found[document].append(record)
        else:
            found[document] = [record]
    return found


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which SQLite cannot store, by question marks."""
    if text.isascii():  # stored in the string header, so this is fast
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _escape_surrogates(text: str) -> str:
    """Return the same JSON with lone surrogates escaped."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text))
    return text


def encode_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts of a document as JSON: [pipeline, metric, kind, value, why].

    Finite numbers are stored as such, other values as encoded text.
    """
    if len(verdicts) == 1:
        return f"[{_encode_verdict(verdicts[0])}]"
    return f"[{','.join([_encode_verdict(verdict) for verdict in verdicts])}]"


def _encode_verdict(verdict: Verdict) -> str:
    if isinstance(verdict, Score):
        value: Any = verdict.value
        head = _encode_verdict_prefix(verdict.pipeline, verdict.metric, "score")
        if type(value) is float and isfinite(value) and not verdict.why:  # the common case
            return f'{head}{value!r},""]'
        plain = type(value) is int or (type(value) is float and isfinite(value))
        text = repr(value) if plain else to_json(_escape_surrogates(encode(value)))
        return f"{head}{text},{_encode_json_text(verdict.why)}]"
    if isinstance(verdict, Unscored):
        head = _encode_verdict_prefix(verdict.pipeline, verdict.metric, "unscored")
        return f"{head}null,{_encode_json_text(verdict.why)}]"
    head = _encode_verdict_prefix(verdict.pipeline, verdict.metric, "evidence")
    return f'{head}{to_json(_escape_surrogates(encode(verdict.value)))},""]'


@lru_cache(maxsize=4096)
def _encode_verdict_prefix(pipeline: str, metric: str, kind: str) -> str:
    """Return the beginning of all verdicts of a metric."""
    return replace_surrogates(f"[{_quote(pipeline)},{_quote(metric)},{_quote(kind)},")


def build_repeat_rows(first: int, repeats: Iterable[RepeatScores]) -> list[tuple[Any, ...]]:
    """Return one row per document with the repeat scores of all pipelines; `first` is the first row of the task."""
    listed: dict[int, list[Any]] = {}
    for one in repeats:
        scores = {metric: list(values) for metric, values in one.scores.items()}
        samples = [{metric: list(map(list, values)) for metric, values in one.judge_samples.items()}]
        entry = [one.pipeline, list(one.answers), scores, *(samples if one.judge_samples else ())]
        listed.setdefault(one.document, []).append(entry)
    return [
        add_checksum((first + document, _escape_surrogates(to_json(content))))
        for document, content in listed.items()
    ]


def decode_repeats(document: int, content: str) -> Iterable[RepeatScores]:
    """Decode a row written by `build_repeat_rows`."""
    for pipeline, answers, scores, *more in parse_json(content):
        values = {metric: tuple(float(one) for one in given) for metric, given in scores.items()}
        samples = {
            metric: tuple(tuple(map(float, one)) for one in given)
            for metric, given in (more[0] if more else {}).items()
        }
        yield RepeatScores(
            document=document,
            pipeline=pipeline,
            answers=tuple(answers),
            scores=values,
            judge_samples=samples,
        )


def _encode_json_text(text: str) -> str:
    return to_json(replace_surrogates(text)) if text else '""'


def encode_estimate(estimate: Estimate) -> str:
    """Return an estimate as text; a value of an unsupported type is summarised."""
    content = asdict(estimate)
    try:
        return _escape_surrogates(encode(content))
    except TypeError:
        return _escape_surrogates(encode(to_plain(content)))


def decode_estimate(content: str) -> Estimate:
    """Decode a text written by `encode_estimate`."""
    return Estimate(**decode(content))


def decode_verdict_value(value: Any) -> Any:
    """Return the value of a stored verdict as scoring produced it."""
    return decode(value) if isinstance(value, str) else value
