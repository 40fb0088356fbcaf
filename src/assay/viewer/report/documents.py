"""The documents a report shows: what was asked, wanted and answered, cut to what people read, media as small pictures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.responses import LogProbability, Response
from assay.store.one_document import Asked, DocumentRecord, read_document
from assay.store.runs import Run
from assay.viewer.document_facts import DocumentFacts, kind_of
from assay.viewer.prompts import stored_messages
from assay.viewer.reasons import reason
from assay.viewer.report.media import Shelf
from assay.viewer.tables import number

__all__ = ["DocumentView", "Part", "Side", "Turn", "document_views"]

_LONGEST = 6000
_QUESTION = 900
"""How much of the end of a long prompt is shown at once: the question comes after the examples."""

_MOST_RESPONSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a prompt."""

    kind: str
    """text, image, audio, video"""

    text: str = ""
    head: str | None = None
    """What comes before the text, folded away."""

    url: str = ""
    """The medium itself, where it is small enough to be in the file."""

    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one side says in a prompt."""

    role: str
    parts: list[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one run made of a document."""

    label: str
    kind: str = ""
    """right, wrong, failed, judge-failed, other"""

    why: str = ""
    choices: list[dict[str, Any]] = field(default_factory=list)
    responses: list[tuple[str, int]] = field(default_factory=list)
    """Texts, and how often each came where several were asked for."""

    reasons: list[str] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    judges: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentView:
    """One document, ready to be written down."""

    task: str
    number: int
    why: str
    kind: str
    """The colour it gets: right, wrong, failed, judge-failed, other."""

    turns: list[Turn]
    target: str | None
    sides: list[Side]


def document_views(
    runs: Sequence[Run],
    labels: Sequence[str],
    looked: Mapping[str, Sequence[DocumentFacts | None]],
    count: int,
) -> list[DocumentView]:
    """As many documents as asked for, tasks in turns, each as every run answered it."""
    shelf = Shelf()
    views = []
    for task, at, document, why in _chosen(looked, count):
        record = read_document(runs[at].journal, task, document)
        if record is None:
            continue
        several = len(runs) > 1
        sides = [_side(record, labels[at] if several else "", why if several else "")]
        for other, (run, label) in enumerate(zip(runs, labels, strict=True)):
            if other != at and task in run.tasks:
                found = read_document(run.journal, task, document)
                if found is not None and found.fields == record.fields:
                    sides.append(_side(found, label, _why(found, looked[task][other])))
        views.append(
            DocumentView(
                task=str(runs[at].tasks[task].get("alias") or task),
                number=document,
                why=why,
                kind=_kind(why),
                turns=_turns(record, runs[at], shelf),
                target=None if record.target is None else _cut(_text(record.target)),
                sides=sides,
            )
        )
    return views


def _chosen(
    looked: Mapping[str, Sequence[DocumentFacts | None]], count: int
) -> Iterator[tuple[str, int, int, str]]:
    """(task, run, document, why): one of each task, then another of each, until there are enough; in reading order."""
    first = {
        task: next(((at, one) for at, one in enumerate(sides) if one is not None), None)
        for task, sides in looked.items()
    }
    turns = [
        (task, found[0], found[1].worth[turn])
        for turn in range(count)
        for task, found in first.items()
        if found is not None and turn < len(found[1].worth)
    ]
    tasks = list(looked)
    for task, at, picked in sorted(turns[:count], key=lambda one: (tasks.index(one[0]), one[2].document)):
        yield task, at, picked.document, picked.why


def _turns(record: DocumentRecord, run: Run, shelf: Shelf) -> list[Turn]:
    """The first prompt; those of other choices differ in the choice only."""
    if not record.prompts:
        return []
    text = record.prompts[0]
    messages = stored_messages(text)
    if messages is None:
        return [Turn(role="", parts=[_text_part(text)])]
    return [
        Turn(
            role=str(message.get("role", "")) if len(messages) > 1 else "",
            parts=[_part(piece, run, shelf) for piece in message.get("content", ())],
        )
        for message in messages
    ]


def _part(piece: Mapping[str, Any], run: Run, shelf: Shelf) -> Part:
    kind = str(piece.get("type", ""))
    if kind == "text":
        return _text_part(str(piece.get("text", "")))
    return Part(
        kind=kind, **shelf.show(run, kind, str(piece.get("digest", "")), str(piece.get("source", "")))
    )


def _text_part(text: str) -> Part:
    if len(text) <= 1.5 * _QUESTION:
        return Part(kind="text", text=text)
    at = text.rfind("\n", 0, len(text) - _QUESTION // 3)
    at = at if at > len(text) - 2 * _QUESTION else len(text) - _QUESTION
    return Part(kind="text", text=text[at:].lstrip("\n"), head=_cut(text[:at], 4 * _LONGEST))


def _kind(why: str) -> str:
    if why in ("right", "wrong", "failed", "judge-failed"):
        return why
    return "" if why in ("", "scored", "skipped", "open") else "other"


def _why(record: DocumentRecord, facts: DocumentFacts | None) -> str:
    """In a word, how a run did on a document."""
    for pipeline, metric, kind, value, _ in record.verdicts:
        if facts is not None and (pipeline, metric, kind) == (facts.pipeline, facts.metric, "score"):
            return kind_of(record.outcome, value if isinstance(value, (int, float)) else None, facts.upward)
    return record.outcome


def _side(record: DocumentRecord, label: str, why: str) -> Side:
    choices = [one for one in record.asked if one.kind == "likelihood"]
    texts = [one.response for one in record.asked if one.kind == "generate" and one.response is not None]
    counted = Counter(str(one.value) for one in texts)
    responses = [(_cut(text), count) for text, count in list(counted.items())[:_MOST_RESPONSES]]
    reasons = [_finish(one) for one in texts[:1] if one.finish not in ("", "stop")]
    if len(counted) > _MOST_RESPONSES:
        reasons.append(f"and {len(counted) - _MOST_RESPONSES} other responses")
    for one in record.asked:
        if (
            one.kind == "rolling"
            and one.response is not None
            and isinstance(one.response.value, LogProbability)
        ):
            reasons.append(f"log-probability {one.response.value.total:.4f}")
    if record.outcome not in ("scored", "skipped") and record.why:
        reasons.append(f"{record.outcome}: {reason(record.why)}")
    elif not record.asked or all(one.response is None for one in record.asked):
        reasons.append("no answer")
    return Side(
        label=label,
        why=why,
        kind=_kind(why),
        choices=_choices(choices),
        responses=responses,
        reasons=reasons,
        answers=_answers(record, [text for text, _ in responses]),
        verdicts=[_verdict(*one) for one in record.verdicts if one[2] != "evidence"][:12],
        judges=[
            {
                "judge": turn.judge,
                "prompt": _cut(turn.prompt),
                "reply": "no reply" if turn.reply is None else _cut(str(turn.reply.value)),
            }
            for turn in record.judges[:4]
        ],
    )


def _finish(response: Response) -> str:
    said = {"length": "cut off at the token limit", "refused": "refused, or stopped by a content filter"}
    return said.get(response.finish, f"ended: {response.finish}")


def _choices(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """Every choice with its log-probability, the likeliest in bold; of repeats and other prompts the first."""
    seen: dict[str, LogProbability] = {}
    for one in asked:
        if one.response is not None and isinstance(one.response.value, LogProbability):
            seen.setdefault(one.continuation, one.response.value)
    if not seen:
        return []
    top = max(seen, key=lambda choice: seen[choice].total)
    return [
        {
            "text": _cut(choice, 400),
            "logprob": f"{value.total:.3f}",
            "chosen": choice == top and len(seen) > 1,
            "mark": "likeliest" if choice == top and len(seen) > 1 else "",
        }
        for choice, value in list(seen.items())[:30]
    ]


def _answers(record: DocumentRecord, responses: Sequence[str]) -> list[tuple[str, str]]:
    """What each filter pipeline took for the answer, where that is not simply the response."""
    found = []
    for name, values in record.answers.items():
        value = values[0] if len(values) == 1 else values
        text = _cut(_text(value), 300)
        if isinstance(value, list) and any(isinstance(one, list) for one in value):
            continue  # log-probabilities, shown above
        if not (len(responses) == 1 and text.strip() == responses[0].strip()):
            found.append(("" if name == "none" else name, text))
    return found[:6]


def _verdict(pipeline: str, metric: str, kind: str, value: Any, why: str) -> str:
    name = metric if pipeline in ("", "none") else f"{metric} ({pipeline})"
    said = f"{name}: {_cut(number(value), 120)}" if kind != "unscored" else f"{name}: no score"
    return f"{said} ({_cut(reason(why), 200)})" if why else said


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, longest: int = _LONGEST) -> str:
    """A text that fits a page: its beginning and its end."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
