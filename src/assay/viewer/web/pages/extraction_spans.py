"""The part of a response that the filters extracted, as positions in its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.store.documents.details import DocumentRecord

__all__ = ["find_extracted_spans"]

Span = tuple[int, int]
_MAX_LENGTH = 200_000
_MAX_ANSWER_LENGTH = 400
_END_OF_THINKING = re.compile(r"</(?:think|thinking|thought|analysis|reasoning)>")
_SELECTING = ("take_first", "take_first_k", "majority_vote")
"""Filters that select among responses and do not change their text."""


def find_extracted_spans(record: DocumentRecord, facts: Mapping[str, Any]) -> dict[int, list[Span]]:
    """Return place among the requests -> the parts of its response that became an answer.

    A `regex` filter is applied again to find its position. For other filters, an answer that occurs once in the response
    is its position.
    """
    found: dict[int, list[Span]] = {}
    for place, request in enumerate(record.asked):
        if request.response is None or not isinstance(request.response.value, str):
            continue
        text = request.response.value
        if not text or len(text) > _MAX_LENGTH:
            continue
        for name, answers in record.answers.items():
            pipeline = (facts.get("filters") or {}).get(name) or {}
            values = _list_texts(answers[request.number] if request.number < len(answers) else None)
            span = _follow_steps(text, pipeline, values) or _find_only_place(text, values)
            if span is not None and span != (0, len(text)):
                spans = found.setdefault(place, [])
                if span not in spans:
                    spans.append(span)
    return found


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _follow_steps(text: str, pipeline: Mapping[str, Any], answers: Sequence[str]) -> Span | None:
    """Return where the `regex` filters of a pipeline arrive in a text, if the answer is there."""
    span: Span | None = None
    start, end = _skip_thinking(text) if pipeline.get("thoughts_first") else 0, len(text)
    for step in pipeline.get("steps", ()):
        function = step.get("function")
        if function == "strip_thinking" and span is None:
            start = _skip_thinking(text)
        elif function in ("lowercase", "uppercase"):
            changed = text.lower() if function == "lowercase" else text.upper()
            text = changed if len(changed) == len(text) else text
        elif function == "regex":
            match = _match(text[start:end], step.get("arguments") or {})
            if match is None:
                return None
            start, end = start + match[0], start + match[1]
            span = (start, end)
        elif function not in _SELECTING:
            break
    if span is None or (answers and not any(_is_similar(text[start:end], answer) for answer in answers)):
        return None
    return span


def _skip_thinking(text: str) -> int:
    """Return where the text after the last thinking part starts."""
    return max((found.end() for found in _END_OF_THINKING.finditer(text)), default=0)


def _is_similar(part: str, answer: str) -> bool:
    """Whether an answer comes from a part of a text: later filters may change its case or its punctuation."""
    simple = [re.sub(r"\W+", "", one).casefold() for one in (part, answer)]
    return bool(simple[0]) and (simple[0] in simple[1] or simple[1] in simple[0])


def _match(text: str, arguments: Mapping[str, Any]) -> Span | None:
    """Return what the filter `regex` selects in a text."""
    try:
        pattern = re.compile(str(arguments.get("regex_pattern", r"#### (\-?[0-9\.\,]+)")))
        matches = list(pattern.finditer(text))
        match = matches[int(arguments.get("group_select", 0))]
    except (re.error, IndexError, ValueError, TypeError):
        return None
    numbers = range(1, pattern.groups + 1) if pattern.groups else (0,)
    group = next((number for number in numbers if match.group(number)), None)
    if group is None:
        return None
    taken = match.group(group)
    start = match.start(group) + len(taken) - len(taken.lstrip())
    return (start, start + len(taken.strip())) if taken.strip() else None


def _find_only_place(text: str, answers: Sequence[str]) -> Span | None:
    for answer in answers:
        wanted = answer.strip()
        if wanted and len(wanted) <= _MAX_ANSWER_LENGTH and wanted != text.strip():
            places = list(re.finditer(rf"(?<!\w){re.escape(wanted)}(?!\w)", text))
            if len(places) == 1:
                return places[0].span()
    return None
