"""The sample documents of a report: prompt, target, responses and verdicts, shortened, with media as thumbnails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.records.responses import LogProbability, Response
from assay.store.documents.details import DocumentRecord, RequestRecord, read_document
from assay.store.runs.run import Run
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.documents.prompts import parse_stored_messages
from assay.viewer.documents.statistics import DocumentStatistics, classify_document
from assay.viewer.documents.truncation import describe_truncation
from assay.viewer.number_format import format_number
from assay.viewer.report.media import MediaEmbedder

__all__ = [
    "build_text_part",
    "DocumentView",
    "ReportMessage",
    "ReportPart",
    "RunAnswer",
    "build_document_views",
]

_MAX_TEXT = 6000
_QUESTION_LENGTH = 900
"""The length of the visible end of a long prompt: the question follows the few-shot examples."""

_MAX_RESPONSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A piece of a prompt."""

    kind: str
    """text, image, audio, video"""

    text: str = ""
    head: str | None = None
    """The text before it, collapsed; None if there is none."""

    url: str = ""
    """The media as a data URL; empty if it is too large."""

    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMessage:
    """One message of a prompt."""

    role: str
    parts: list[ReportPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The responses, answers and verdicts of one run."""

    label: str
    kind: str = ""
    """right, wrong, failed, judge-failed, other"""

    why: str = ""
    choices: list[dict[str, Any]] = field(default_factory=list)
    responses: list[tuple[str, int]] = field(default_factory=list)
    """Distinct responses and how often each occurred among the repeats."""

    reasons: list[str] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    judges: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentView:
    """One document with the answers of all runs."""

    task: str
    number: int
    why: str
    kind: str
    """The CSS class: right, wrong, failed, judge-failed, other."""

    messages: list[ReportMessage]
    target: str | None
    sides: list[RunAnswer]


def build_document_views(
    runs: Sequence[Run],
    labels: Sequence[str],
    statistics: Mapping[str, Sequence[DocumentStatistics | None]],
    count: int,
) -> list[DocumentView]:
    """Build `count` documents, alternating between tasks, each with the answers of every run."""
    embedder = MediaEmbedder()
    views = []
    for task, position, document, why in _choose_documents(statistics, count):
        record = read_document(runs[position].journal, task, document)
        if record is None:
            continue
        several = len(runs) > 1
        sides = [_build_answer(record, labels[position] if several else "", why if several else "")]
        for other, (run, label) in enumerate(zip(runs, labels, strict=True)):
            if other != position and task in run.tasks:
                found = read_document(run.journal, task, document)
                if found is not None and found.fields == record.fields:
                    sides.append(_build_answer(found, label, _classify(found, statistics[task][other])))
        views.append(
            DocumentView(
                task=str(runs[position].tasks[task].get("alias") or task),
                number=document,
                why=why,
                kind=_choose_colour(why),
                messages=_build_messages(record, runs[position], embedder),
                target=None if record.target is None else _truncate(_to_text(record.target)),
                sides=sides,
            )
        )
    return views


def _choose_documents(
    statistics: Mapping[str, Sequence[DocumentStatistics | None]], count: int
) -> Iterator[tuple[str, int, int, str]]:
    """Yield (task, run, document, kind): documents from each task in turn, sorted by task and number."""
    first = {
        task: next(((position, one) for position, one in enumerate(sides) if one is not None), None)
        for task, sides in statistics.items()
    }
    turns = [
        (task, found[0], found[1].samples[turn])
        for turn in range(count)
        for task, found in first.items()
        if found is not None and turn < len(found[1].samples)
    ]
    tasks = list(statistics)
    for task, position, picked in sorted(
        turns[:count], key=lambda one: (tasks.index(one[0]), one[2].document)
    ):
        yield task, position, picked.document, picked.kind


def _build_messages(record: DocumentRecord, run: Run, embedder: MediaEmbedder) -> list[ReportMessage]:
    """Return the first prompt; prompts of other choices differ in the choice only."""
    if not record.prompts:
        return []
    text = record.prompts[0]
    messages = parse_stored_messages(text)
    if messages is None:
        return [ReportMessage(role="", parts=[build_text_part(text)])]
    return [
        ReportMessage(
            role=str(message.get("role", "")) if len(messages) > 1 else "",
            parts=[_build_part(piece, run, embedder) for piece in message.get("content", ())],
        )
        for message in messages
    ]


def _build_part(piece: Mapping[str, Any], run: Run, embedder: MediaEmbedder) -> ReportPart:
    kind = str(piece.get("type", ""))
    if kind == "text":
        return build_text_part(str(piece.get("text", "")))
    return ReportPart(
        kind=kind, **embedder.embed(run, kind, str(piece.get("digest", "")), str(piece.get("source", "")))
    )


def build_text_part(text: str) -> ReportPart:
    """Return a text as a part; all but the end of a long text is collapsed."""
    if len(text) <= 1.5 * _QUESTION_LENGTH:
        return ReportPart(kind="text", text=text)
    position = text.rfind("\n", 0, len(text) - _QUESTION_LENGTH // 3)
    position = position if position > len(text) - 2 * _QUESTION_LENGTH else len(text) - _QUESTION_LENGTH
    return ReportPart(
        kind="text", text=text[position:].lstrip("\n"), head=_truncate(text[:position], 4 * _MAX_TEXT)
    )


def _choose_colour(why: str) -> str:
    if why in ("right", "wrong", "failed", "judge-failed"):
        return why
    return "" if why in ("", "scored", "skipped", "open") else "other"


def _classify(record: DocumentRecord, facts: DocumentStatistics | None) -> str:
    """Return right, wrong, partly right or the ending of a run's document."""
    for pipeline, metric, kind, value, _ in record.verdicts:
        if facts is not None and (pipeline, metric, kind) == (facts.pipeline, facts.metric, "score"):
            return classify_document(
                record.outcome, value if isinstance(value, (int, float)) else None, facts.higher_is_better
            )
    return record.outcome


def _build_answer(record: DocumentRecord, label: str, why: str) -> RunAnswer:
    choices = [one for one in record.asked if one.kind == "likelihood"]
    texts = [one.response for one in record.asked if one.kind == "generate" and one.response is not None]
    counted = Counter(str(one.scored_value) for one in texts)
    responses = [(_truncate(text), count) for text, count in list(counted.items())[:_MAX_RESPONSES]]
    reasons = [_describe_finish(one) for one in texts[:1] if one.finish not in ("", "stop")]
    if len(counted) > _MAX_RESPONSES:
        reasons.append(f"and {len(counted) - _MAX_RESPONSES} other responses")
    if truncation := describe_truncation(record.asked):
        reasons.append(f"prompt truncated: {truncation}")
    for one in record.asked:
        if (
            one.kind == "rolling"
            and one.response is not None
            and isinstance(one.response.value, LogProbability)
        ):
            reasons.append(f"log-probability {one.response.value.total:.4f}")
    if record.outcome not in ("scored", "skipped") and record.why:
        reasons.append(f"{record.outcome}: {summarise_reason(record.why)}")
    elif not record.asked or all(one.response is None for one in record.asked):
        reasons.append("no response")
    return RunAnswer(
        label=label,
        why=why,
        kind=_choose_colour(why),
        choices=_build_choices(choices),
        responses=responses,
        reasons=reasons,
        answers=_build_answers(record, [text for text, _ in responses]),
        verdicts=[_format_verdict(*one) for one in record.verdicts if one[2] != "evidence"][:12],
        judges=[
            {
                "judge": turn.judge,
                "prompt": _truncate(turn.prompt),
                "reply": "no reply" if turn.reply is None else _truncate(str(turn.reply.value)),
            }
            for turn in record.judges[:4]
        ],
    )


def _describe_finish(response: Response) -> str:
    texts = {"length": "truncated at the token limit", "refused": "refused, or blocked by a content filter"}
    return texts.get(response.finish, f"finish reason: {response.finish}")


def _build_choices(requests: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    """Return every choice with its log-probability and a mark on the most likely one."""
    seen: dict[str, LogProbability] = {}
    for one in requests:
        if one.response is not None and isinstance(one.response.value, LogProbability):
            seen.setdefault(one.continuation, one.response.value)
    if not seen:
        return []
    top = max(seen, key=lambda choice: seen[choice].total)
    return [
        {
            "text": _truncate(choice, 400),
            "logprob": f"{value.total:.3f}",
            "chosen": choice == top and len(seen) > 1,
            "mark": "most likely" if choice == top and len(seen) > 1 else "",
        }
        for choice, value in list(seen.items())[:30]
    ]


def _build_answers(record: DocumentRecord, responses: Sequence[str]) -> list[tuple[str, str]]:
    """Return the answer of each filter pipeline that differs from the response."""
    found = []
    for name, values in record.answers.items():
        value = values[0] if len(values) == 1 else values
        text = _truncate(_to_text(value), 300)
        if isinstance(value, list) and any(isinstance(one, list) for one in value):
            continue  # log-probabilities, shown above
        if not (len(responses) == 1 and text.strip() == responses[0].strip()):
            found.append(("" if name == "none" else name, text))
    return found[:6]


def _format_verdict(pipeline: str, metric: str, kind: str, value: Any, why: str) -> str:
    name = metric if pipeline in ("", "none") else f"{metric} ({pipeline})"
    text = f"{name}: {_truncate(format_number(value), 120)}" if kind != "unscored" else f"{name}: unscored"
    return f"{text} ({_truncate(summarise_reason(why), 200)})" if why else text


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _truncate(text: str, max_length: int = _MAX_TEXT) -> str:
    """Shorten a long text to its beginning and its end."""
    if len(text) <= max_length:
        return text
    half = max_length // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters omitted …\n{text[-half:]}"
