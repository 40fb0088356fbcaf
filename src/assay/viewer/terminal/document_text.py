"""One document of a run as text: the end of the prompt, the responses, what the filters took, the target, the scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.progress import label_service
from assay.core.records.responses import LogProbability, Response
from assay.core.terminal_text import escape_control_characters
from assay.store.documents.details import DocumentRecord, RequestRecord
from assay.viewer.documents.choices import build_choices
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.documents.filter_trace import FilterTrace, build_filter_traces, format_value
from assay.viewer.documents.prompts import FewshotText, MediaPart, PromptMessage, ToolPart, parse_prompt
from assay.viewer.documents.truncation import describe_truncation
from assay.viewer.number_format import format_number

__all__ = ["DocumentLine", "describe_document"]

_MAX_PROMPT_LINES = 12
_MAX_PROMPT_CHARACTERS = 800
_MAX_RESPONSE_CHARACTERS = 1200
_MAX_RESPONSE_LINES = 20
_MAX_VALUE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLine:
    """A labelled part of a document; the text can have several lines."""

    label: str
    text: str
    note: str = ""
    """What was left out, or how a response ended."""


def describe_document(
    record: DocumentRecord, facts: Mapping[str, Any], *, full: bool = False
) -> Iterator[DocumentLine]:
    """Yield the parts of a document in reading order; `facts` are those of its task.

    Long prompts are cut at the start and long responses in the middle, unless `full` is set.
    """
    yield from _describe_prompts(record, facts, full=full)
    if tools := _list_tools(record.asked):
        yield DocumentLine(label="tools", text=", ".join(tools))
    likelihoods = [request for request in record.asked if request.kind == "likelihood"]
    if likelihoods:
        yield from _describe_choices(likelihoods, record.target)
    yield from _describe_responses(
        [request for request in record.asked if request.kind != "likelihood"], full=full
    )
    for judge in record.judges:
        reply = "" if judge.reply is None else _format_response(judge.reply)
        text, note = (reply, "") if full else _cut_middle(reply)
        yield DocumentLine(
            label=label_service(judge.judge), text=text, note=note if judge.reply else "no reply was received"
        )
    if not likelihoods:
        yield from _describe_answers(build_filter_traces(record, facts))
    if record.target is not None:
        yield DocumentLine(label="target", text=_quote(record.target))
    if scores := _format_verdicts(record):
        yield DocumentLine(label="score", text=scores)
    if record.outcome != "scored" or record.why:
        why = summarise_reason(record.why) if record.why else ""
        yield DocumentLine(label="ending", text=f"{record.outcome}: {why}" if why else record.outcome)


def _describe_prompts(
    record: DocumentRecord, facts: Mapping[str, Any], *, full: bool
) -> Iterator[DocumentLine]:
    delimiter = str(facts.get("config", {}).get("fewshot_delimiter") or "\n\n")
    several = len(record.prompts) > 1
    truncated = describe_truncation(record.asked)
    truncated = f"truncated: {truncated}" if truncated else ""
    for index, prompt in enumerate(record.prompts):
        messages = parse_prompt(prompt, fields=record.fields, n_shot=facts.get("n_shot"), delimiter=delimiter)
        text, examples = _format_messages(messages, full=full)
        cut, note = (text, "") if full else _cut_start(text)
        notes = [one for one in (truncated, examples, note) if one]
        label = f"prompt {index + 1}" if several else "prompt"
        yield DocumentLine(label=label, text=cut, note="; ".join(notes))


def _list_tools(requests: Sequence[RequestRecord]) -> list[str]:
    """Return the names of the tools that the requests carry, each once."""
    tools = (tool for one in requests for tool in one.options.get("tools", {}).get("tools", ()))
    return list(dict.fromkeys(escape_control_characters(tool["name"]) for tool in tools))


def _format_messages(messages: Sequence[PromptMessage], *, full: bool) -> tuple[str, str]:
    """Return the text of the messages, few-shot examples excepted, and a note about these."""
    lines = []
    hidden = 0
    for message in messages:
        if message.example and not full:
            hidden += 1
            continue
        parts = []
        for part in message.parts:
            if isinstance(part, FewshotText):
                hidden += 0 if full else 1
                parts.append(part.text if full else "")
            elif isinstance(part, MediaPart):
                parts.append(f"<{part.kind} {part.digest[:12]}>")
            elif isinstance(part, ToolPart):
                separator = "\n" if any(parts) else ""  # a call has a line of its own
                parts.append(
                    f"{separator}{part.tool}({part.text})" if part.kind == "tool call" else part.text
                )
            else:
                parts.append(part)
        text = "".join(parts)
        lines.append(f"[{message.role}] {text}" if message.role else text)
    return "\n".join(lines), "few-shot examples not shown" if hidden else ""


def _describe_choices(requests: Sequence[RequestRecord], target: Any) -> Iterator[DocumentLine]:
    choices = build_choices(requests, target)
    lines = []
    for choice in choices:
        marks = [
            *(["chosen"] if choice["best"] else []),
            *(["chosen per character"] if choice["best_norm"] and not choice["best"] else []),
            *(["target"] if choice["is_target"] else []),
        ]
        mark = f"  ← {', '.join(marks)}" if marks else ""
        lines.append(f"{choice['number']}  {choice['total']:9.4f}  {_quote(choice['text'])}{mark}")
    missing = sum(1 for request in requests if request.response is None)
    note = f"{missing} of {len(requests)} requests have no response" if missing else "log probabilities"
    yield DocumentLine(label="choices", text="\n".join(lines), note=note)
    yield from _describe_failures(requests)


def _describe_responses(requests: Sequence[RequestRecord], *, full: bool) -> Iterator[DocumentLine]:
    several = len(requests) > 1
    for index, request in enumerate(requests):
        label = f"response {index + 1}" if several else "response"
        if request.response is None:
            failures = [f"{kind}: {message}" for kind, message, _ in request.failures[-1:]]
            yield DocumentLine(label=label, text="\n".join(failures), note="no response was received")
            continue
        text, note = (_format_response(request.response), "")
        if not full:
            text, note = _cut_middle(text)
        if request.response.reasoning:
            reasoning = request.response.reasoning
            thought, left_out = (reasoning, "") if full else _cut_middle(reasoning)
            yield DocumentLine(label="reasoning", text=thought, note=left_out)
        ended = {"length": "ended by the token limit", "refused": "refused"}.get(request.response.finish, "")
        empty = "empty" if not text else ""
        yield DocumentLine(label=label, text=text, note="; ".join(one for one in (empty, ended, note) if one))


def _describe_failures(requests: Sequence[RequestRecord]) -> Iterator[DocumentLine]:
    failures = dict.fromkeys(
        f"{kind}: {message}" for request in requests for kind, message, _ in request.failures[-1:]
    )
    if failures:
        yield DocumentLine(label="failed", text="\n".join(failures))


def _describe_answers(traces: Sequence[FilterTrace]) -> Iterator[DocumentLine]:
    """Yield what each filter pipeline took from the responses."""
    for trace in traces:
        steps = " → ".join(step.name for step in trace.steps)
        answer = ", ".join(_quote(value) for value in trace.answers)
        name = "" if trace.name == "none" else f"{trace.name}: "
        yield DocumentLine(
            label="answer",
            text=f"{name}{answer}",
            note=steps if trace.name != "none" or len(trace.steps) > 1 else "",
        )


def _format_verdicts(record: DocumentRecord) -> str:
    parts = []
    for pipeline, metric, kind, value, why in record.verdicts:
        name = metric if pipeline == "none" else f"{metric},{pipeline}"
        if kind == "score":
            reason = f" ({summarise_reason(why)})" if why else ""
            parts.append(f"{name} {format_number(value)}{reason}")
        elif kind == "unscored":
            parts.append(f"{name} no score ({summarise_reason(why)})")
        else:
            parts.append(f"{name} scored over the whole task")
    return "\n".join(parts)


def _format_response(response: Response) -> str:
    value = response.scored_value
    if isinstance(value, LogProbability):
        return f"log probability {value.total:.4f}"
    return escape_control_characters(value)


def _quote(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        is_json = any(isinstance(one, dict) for one in value)  # expected tool calls
        text = json.dumps(value, ensure_ascii=False, default=str) if is_json else repr(format_value(value))
    else:
        text = repr(value)
    text = escape_control_characters(text)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


def _cut_start(text: str) -> tuple[str, str]:
    """Return the end of a long text and a note about what was left out."""
    lines = escape_control_characters(text).split("\n")
    cut = "\n".join(lines[-_MAX_PROMPT_LINES:])[-_MAX_PROMPT_CHARACTERS:]
    left_out = len("\n".join(lines)) - len(cut)
    return (f"…{cut}", f"{left_out} characters before it not shown") if left_out else (cut, "")


def _cut_middle(text: str) -> tuple[str, str]:
    """Return the start and the end of a long text and a note about what was left out."""
    lines = text.split("\n")
    if len(text) <= _MAX_RESPONSE_CHARACTERS and len(lines) <= _MAX_RESPONSE_LINES:
        return text, ""
    half, half_lines = _MAX_RESPONSE_CHARACTERS // 2, _MAX_RESPONSE_LINES // 2
    start, end = "\n".join(lines[:half_lines])[:half], "\n".join(lines[-half_lines:])[-half:]
    left_out = len(text) - len(start) - len(end)
    if left_out <= 0:
        return text, ""
    return f"{start}\n… {left_out} characters …\n{end}", "cut in the middle"
