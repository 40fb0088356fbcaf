"""Records as rows and back: the one place that knows the order of columns."""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from math import isfinite
from typing import Any, TypeVar

from assay.core.codec import decode, encode, to_plain
from assay.core.messages import Prompt, Text, Video
from assay.core.requests import Generate, Likelihood, Request
from assay.core.responses import LogProbability, Response, Usage
from assay.core.verdicts import Answer, Estimate, RepeatScores, Score, Unscored, Verdict
from assay.store.integrity.row_checksums import compute_checksum

__all__ = [
    "DELETE_ANSWERED",
    "DELETE_RESPONSE",
    "INSERT_ANSWERED",
    "INSERT_JUDGE_REQUEST",
    "INSERT_RESPONSE",
    "REPLACE_RESPONSE",
    "SELECT_ANSWERED",
    "SELECT_RESPONSE",
    "build_answered_row",
    "build_filter_step_rows",
    "build_judge_request_row",
    "build_repeat_rows",
    "build_response_row",
    "decode_repeats",
    "encode_answers",
    "encode_fields",
    "encode_prompt",
    "encode_requests",
    "encode_target",
    "encode_verdicts",
    "group_by_document",
    "replace_surrogates",
    "response_from_answered",
    "response_from_row",
]

Judged = TypeVar("Judged", bound=Answer | Verdict)
INSERT_ANSWERED = "INSERT INTO answered VALUES (?,?,?,?,?,?,?,?,?)"
SELECT_ANSWERED = "SELECT fingerprint, text, logprob, greedy, details, crc FROM answered"
INSERT_JUDGE_REQUEST = "INSERT OR IGNORE INTO judge_requests VALUES (?,?,?,?,?,?,?,?)"
DELETE_ANSWERED = "DELETE FROM answered WHERE fingerprint = ?"
_RESPONSE_COLUMNS = "fingerprint, text, logprob, greedy, finish, reasoning, input_tokens, output_tokens, seconds, source, at, crc"
_INSERT = f"INTO responses ({_RESPONSE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
INSERT_RESPONSE = f"INSERT {_INSERT} ON CONFLICT(fingerprint) DO NOTHING"
REPLACE_RESPONSE = f"INSERT OR REPLACE {_INSERT}"
DELETE_RESPONSE = "DELETE FROM responses WHERE fingerprint = ?"
SELECT_RESPONSE = f"SELECT {_RESPONSE_COLUMNS} FROM responses"


def build_response_row(fingerprint: str, response: Response, *, source: str, at: float) -> tuple[Any, ...]:
    """A response as a row."""
    value, usage = response.value, response.usage
    text, logprob, greedy = (
        (_encode_text(value), None, None)
        if isinstance(value, str)
        else (None, value.total, int(value.greedy))
    )
    if logprob != logprob:
        logprob = None  # as SQLite keeps NaN
    reasoning = None if response.reasoning is None else _encode_text(response.reasoning)
    tokens = (int(usage.input_tokens), int(usage.output_tokens)) if usage else (None, None)
    said = (fingerprint, text, logprob, greedy, response.finish or "", reasoning, *tokens)
    return (*said, response.seconds, source, at, compute_checksum(*said))


def response_from_row(row: tuple[Any, ...]) -> Response:
    """A row as a response, named by its fingerprint."""
    fingerprint, text, logprob, greedy, finish, reasoning, read, written, seconds, *_ = row
    return Response(
        request_id=fingerprint,
        value=decode_response_value(text, logprob, greedy),
        finish=finish,
        usage=None if read is None else Usage(read, written),
        seconds=seconds,
        reasoning=None if reasoning is None else _decode_text(reasoning),
    )


def decode_response_value(
    text: str | bytes | None, logprob: float | None, greedy: int | None
) -> str | LogProbability:
    """What the columns of a response say; SQLite keeps NaN as NULL."""
    if text is not None:
        return _decode_text(text)
    return LogProbability(math.nan if logprob is None else logprob, bool(greedy))


def _encode_text(text: str) -> str | bytes:
    """A response as SQLite can hold it: half characters are not UTF-8, so they make it bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _decode_text(kept: str | bytes) -> str:
    return kept.decode("utf-8", "surrogatepass") if isinstance(kept, bytes) else kept


def build_answered_row(
    number: int, fingerprint: str, response: Response, *, source: str, at: float, served: str = ""
) -> tuple[Any, ...]:
    """A response as a row of a journal. Most have no details, so those share a column."""
    value, details = response.value, _encode_details(response, served)
    if isinstance(value, str):
        text = value if value.isascii() else _encode_text(value)
        crc = compute_checksum(fingerprint, text, None, None, details)
        return (number, fingerprint, text, None, None, source, at, details, crc)
    total, greedy = value.total, int(value.greedy)
    crc = compute_checksum(fingerprint, None, total if total == total else None, greedy, details)
    return (number, fingerprint, None, total, greedy, source, at, details, crc)


def response_from_answered(row: tuple[Any, ...]) -> Response:
    """A row of a journal as a response, named by its fingerprint."""
    fingerprint, text, logprob, greedy, details, _ = row
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
    )


def _decode_usage(known: Mapping[str, Any]) -> Usage | None:
    read = known.get("input_tokens")
    if read is None:
        return None
    cached, batched = known.get("cached_tokens", 0), known.get("batched", False)
    return Usage(read, known.get("output_tokens", 0), cached, batched, known.get("cost_usd"))


def _encode_details(response: Response, served: str) -> str | None:
    """What a response says beside its value; None where it says nothing."""
    usage = response.usage
    nothing = (
        not response.finish and usage is None and response.seconds is None and response.reasoning is None
    )
    if nothing and not served:
        return None
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
    return _escape_surrogates(to_json({key: value for key, value in known.items() if value is not None}))


def encode_requests(requests: Sequence[Request], fingerprints: Sequence[str]) -> str:
    """The requests of a document as JSON: each prompt once, then [number, repeat, kind, prompt, argument, fingerprint]."""
    if len(requests) == 1 and type(asked := requests[0]) is Generate:  # by far the most frequent case
        prompt = _quote(encode_prompt(asked.prompt))
        text = f'{{"prompts": [{prompt}], "requests": [[{asked.index}, {asked.repeat}, "generate", 0, "{asked.settings.digest}", "{fingerprints[0]}"]]}}'
        return text if text.isascii() else replace_surrogates(text)
    prompts: list[str] = []
    places: dict[str, int] = {}
    listed = []
    last, place = None, 0
    for request, fingerprint in zip(requests, fingerprints, strict=True):
        if request.prompt is not last:
            last = request.prompt
            place = places.setdefault(last.digest, len(prompts))
            if place == len(prompts):
                prompts.append(_quote(encode_prompt(last)))
        if isinstance(request, Likelihood):
            said = f'"likelihood", {place}, {_quote(request.continuation)}'
        elif isinstance(request, Generate):
            said = f'"generate", {place}, "{request.settings.digest}"'
        else:
            said = f'"rolling", {place}, ""'
        listed.append(f"[{request.index}, {request.repeat}, {said}, {_quote(fingerprint)}]")
    return replace_surrogates(f'{{"prompts": [{", ".join(prompts)}], "requests": [{", ".join(listed)}]}}')


def build_judge_request_row(request: Generate, fingerprint: str, judge: str) -> tuple[Any, ...]:
    """What a judge is asked about a document as a row."""
    place = (request.task, request.document, judge, fingerprint, request.index, request.repeat)
    return (*place, encode_prompt(request.prompt), request.settings.digest)


def encode_prompt(prompt: Prompt) -> str:
    """A prompt as text: itself when it is plain, else JSON messages with media by hash."""
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
    shown = {"type": type(part).__name__.lower(), "digest": part.digest, "source": part.source}
    if isinstance(part, Video) and (part.start_s is not None or part.end_s is not None):
        shown |= {"start_s": part.start_s, "end_s": part.end_s}
    return shown


def _build_json_writer() -> Callable[[Any], str]:
    """`json.dumps(value, ensure_ascii=False)` without its preparations, which cost more than a small value does."""
    make = getattr(json.encoder, "c_make_encoder", None)
    plain = json.JSONEncoder(ensure_ascii=False, check_circular=False)
    if make is None:  # a Python without the part written in C
        return plain.encode
    chunks = make(None, plain.default, json.encoder.encode_basestring, None, ": ", ", ", False, False, True)
    return lambda value: "".join(chunks(value, 0))


to_json = _build_json_writer()
"""A JSON-like value as text."""


_scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def parse_json(text: str) -> Any:
    """The value of a text that `to_json` or one of the functions here wrote."""
    return _scan_json(text, 0)[0]


_quote: Callable[[str], str] = json.encoder.encode_basestring
"""A text as JSON."""


def encode_target(target: Any) -> str:
    """A document's target as JSON."""
    if type(target) is str:
        text = f'{{"target": {_quote(target)}}}'
        return text if text.isascii() else _escape_surrogates(text)
    return encode_fields({"target": target})


def encode_fields(fields: Mapping[str, Any]) -> str:
    """A document's fields as JSON; media are described, not held."""
    if type(fields) is not dict:
        described = getattr(fields, "describe", None)  # rows with media say what is written down of them
        if described is not None:
            fields = described()
    try:
        text = to_json(fields)
    except (TypeError, ValueError, RecursionError):
        text = to_json(to_plain(fields))
    return text if text.isascii() else _escape_surrogates(text)


def encode_answers(answers: Sequence[Answer]) -> str:
    """The answers of a document as JSON: pipeline -> one value per request."""
    if len(answers) == 1:
        values = answers[0].values
        if len(values) == 1 and type(value := values[0]) is str:  # by far the most frequent case
            text = f"{{{_quote(answers[0].pipeline)}: [{_quote(value)}]}}"
            return text if text.isascii() else _escape_surrogates(text)
    return encode_fields({answer.pipeline: answer.values for answer in answers})


def build_filter_step_rows(first: int, answers: Mapping[int, Sequence[Answer]]) -> list[tuple[int, str]]:
    """What each filter did to documents whose rows begin at `first`, where that is kept."""
    return [
        (first + document, encode_fields({one.pipeline: one.steps for one in listed if one.steps}))
        for document, listed in answers.items()
        if any(one.steps for one in listed)
    ]


def group_by_document(records: Iterable[Judged]) -> dict[int, list[Judged]]:
    """Answers or verdicts, those of a document together."""
    found: dict[int, list[Judged]] = {}
    for record in records:
        document = record.document
        if document in found:
            found[document].append(record)
        else:
            found[document] = [record]
    return found


def replace_surrogates(text: str) -> str:
    """A text as SQLite can hold it: half characters, which are not Unicode, become question marks."""
    if text.isascii():  # known without looking at it
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _escape_surrogates(text: str) -> str:
    """The same JSON, with half characters escaped."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text))
    return text


def encode_verdicts(verdicts: Sequence[Verdict]) -> str:
    """The verdicts of a document as JSON: [pipeline, metric, kind, value, why].

    Floats and integers are kept as such, everything else as encoded text.
    """
    if len(verdicts) == 1:
        return f"[{_encode_verdict(verdicts[0])}]"
    return f"[{','.join([_encode_verdict(verdict) for verdict in verdicts])}]"


def _encode_verdict(verdict: Verdict) -> str:
    if isinstance(verdict, Score):
        value: Any = verdict.value
        head = _encode_verdict_prefix(verdict.pipeline, verdict.metric, "score")
        if type(value) is float and isfinite(value) and not verdict.why:  # by far the most frequent case
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
    """How every verdict of a metric begins."""
    return replace_surrogates(to_json([pipeline, metric, kind]))[:-1] + ","


def build_repeat_rows(first: int, repeats: Iterable[RepeatScores]) -> list[tuple[int, str]]:
    """Rows of the repeats of documents whose rows begin at `first`: one of each document, with all its pipelines."""
    listed: dict[int, list[Any]] = {}
    for one in repeats:
        scores = {metric: list(values) for metric, values in one.scores.items()}
        listed.setdefault(one.document, []).append([one.pipeline, list(one.answers), scores])
    return [(first + document, _escape_surrogates(to_json(content))) for document, content in listed.items()]


def decode_repeats(document: int, content: str) -> Iterable[RepeatScores]:
    """What `repeats_rows` wrote of a document."""
    for pipeline, answers, scores in parse_json(content):
        values = {metric: tuple(float(one) for one in given) for metric, given in scores.items()}
        yield RepeatScores(document=document, pipeline=pipeline, answers=tuple(answers), scores=values)


def _encode_json_text(text: str) -> str:
    return to_json(replace_surrogates(text)) if text else '""'


def encode_estimate(estimate: Estimate) -> str:
    """An estimate as text; a value of a kind that cannot be kept is described."""
    content = asdict(estimate)
    try:
        return _escape_surrogates(encode(content))
    except TypeError:
        return _escape_surrogates(encode(to_plain(content)))


def decode_estimate(content: str) -> Estimate:
    """The estimate of a text that `estimate_text` wrote."""
    return Estimate(**decode(content))


def decode_verdict_value(value: Any) -> Any:
    """The value of a verdict row, as scoring made it."""
    return decode(value) if isinstance(value, str) else value
