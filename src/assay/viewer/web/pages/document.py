"""The page of a document: the verdict, the conversation with its media, filters and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.output_types import OutputType
from assay.core.records.responses import Response
from assay.store.documents.details import DocumentRecord, RequestRecord
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.viewer.documents.choices import build_choices
from assay.viewer.documents.filter_trace import build_filter_traces
from assay.viewer.documents.prompts import MediaPart, PromptMessage, parse_prompt
from assay.viewer.documents.truncation import describe_truncation
from assay.viewer.web.pages.agent_cards import build_agent_cards
from assay.viewer.web.pages.conversation import build_agent_rounds, build_rounds, split_segments
from assay.viewer.web.pages.extraction_spans import find_extracted_spans
from assay.viewer.web.pages.token_probabilities import (
    PROBABILITY_LEVELS,
    build_response_tokens,
    explain_missing_tokens,
)
from assay.viewer.web.pages.verdict_summary import (
    Directions,
    build_filter_lines,
    build_verdict_summary,
)

__all__ = ["build_document_context", "build_judge_cards", "describe_media"]

_MAX_FRAMES = 8
_DIALOGUES = (
    OutputType.GENERATE_UNTIL_MULTI_ROUND.value,
    OutputType.GENERATE_UNTIL_AGENTIC.value,
    OutputType.AGENT.value,
)


def build_document_context(
    record: DocumentRecord,
    facts: Mapping[str, Any],
    folder: Path,
    *,
    tokens: bool = False,
    directions: Directions | None = None,
) -> dict[str, Any]:
    """Build the template context of a document.

    `facts` are those of its task, `tokens`: whether the run stores tokens, `directions`: which metrics are better if higher.
    """
    config = facts.get("config", {})
    delimiter = str(config.get("fewshot_delimiter") or "\n\n")
    prompts = [
        parse_prompt(prompt, fields=record.fields, n_shot=facts.get("n_shot"), delimiter=delimiter)
        for prompt in record.prompts
    ]
    likelihoods = [request for request in record.asked if request.kind == "likelihood"]
    choices = build_choices(likelihoods, record.target, record.fields)
    traces = build_filter_traces(record, facts)
    known = directions or {}
    spans = find_extracted_spans(record, facts)
    is_dialogue = str(facts.get("output_type", "")) in _DIALOGUES
    return {
        "record": record,
        "summary": build_verdict_summary(record, choices, traces, known),
        "filter_lines": [] if choices else build_filter_lines(record, traces, known),
        "rounds": build_agent_rounds(prompts, record.asked, spans)
        if record.agents
        else build_rounds(prompts, record.asked, spans, is_dialogue=is_dialogue),
        "prompts": prompts,
        "media": _collect_media(prompts, folder),
        "choices": choices,
        "responses": [request for request in record.asked if request.kind != "likelihood"],
        "response_text": _response_text,
        "tokens": build_response_tokens(record.asked),
        "token_levels": PROBABILITY_LEVELS,
        "truncation": describe_truncation(record.asked),
        "missing_tokens": explain_missing_tokens(record.asked, wanted=tokens),
        "traces": traces,
        "judges": build_judge_cards(record),
        "agents": build_agent_cards(record),
        "n_shot": facts.get("n_shot"),
        "settings": _collect_settings(record.asked),
        "tools": _collect_tools(record.asked),
        "output_type": facts.get("output_type", ""),
    }


def build_judge_cards(record: DocumentRecord) -> list[dict[str, Any]]:
    """Return each judge request with its reply, its metric and its verdict.

    A verdict of a judge panel names each judge with its label (`judge: label; other judge: label`).
    """
    named = [(metric, value, _parse_labels(why)) for _, metric, _, value, why in record.verdicts]
    samples: dict[str, int] = {}
    for turn in record.judges:
        samples[turn.judge] = max(samples.get(turn.judge, 1), turn.repeat + 1)
    cards = []
    for turn in record.judges:
        if turn.judge.startswith("user "):
            continue  # the messages of a simulated user are in the conversation
        found = [
            (metric, value, labels[turn.judge]) for metric, value, labels in named if turn.judge in labels
        ]
        found = [one for one in found if not any(one[0].startswith(f"{other[0]}_") for other in found)]
        several = found[0][2] if len(found) == 1 else []
        if len(several) > samples[turn.judge]:
            several = []  # the labels of several attempts: which one belongs to this reply is unknown
        cards.append(
            {
                "turn": turn,
                "metric": ", ".join(dict.fromkeys(one[0] for one in found)),
                "value": found[0][1] if len(found) == 1 else None,
                "label": several[min(turn.repeat, len(several) - 1)] if several else "",
                "messages": parse_prompt(turn.prompt, fields={}, n_shot=0),
                "reply": "" if turn.reply is None else _response_text(turn.reply),
                "segments": []
                if turn.reply is None or not isinstance(turn.reply.value, str)
                else split_segments(turn.reply.value),
            }
        )
    return cards


def _parse_labels(why: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for piece in why.split("; "):
        name, colon, label = piece.rpartition(": ")
        if colon and "\n" not in piece:
            found.setdefault(name, []).append(label)
    return found


def _response_text(response: Response) -> str:
    value = response.value
    return value if isinstance(value, str) else f"log-probability {value.total:.4f}"


def _collect_settings(requests: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in requests:
        if one.settings and one.settings not in found:
            found.append(one.settings)
    return found


def _collect_tools(requests: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that the requests carry, each once."""
    found: dict[str, dict[str, Any]] = {}
    for one in requests:
        for tool in one.options.get("tools", {}).get("tools", ()):
            found.setdefault(tool["name"], tool)
    return list(found.values())


def _collect_media(prompts: Sequence[Sequence[PromptMessage]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return digest -> description of each media file in the prompts."""
    found: dict[str, dict[str, Any]] = {}
    for messages in prompts:
        for message in messages:
            for part in message.parts:
                if isinstance(part, MediaPart) and part.digest not in found:
                    found[part.digest] = describe_media(part, lambda digest: find_media_file(folder, digest))
    return found


def _explain_frames(part: MediaPart) -> str:
    """Return why a video is displayed as frames."""
    kind = Path(part.source).suffix.removeprefix(".").upper() if "." in Path(part.source).name else ""
    return f"browsers do not play {kind} files; these are frames of the video" if kind else ""


def describe_media(part: MediaPart, find: Callable[[str], Path | None]) -> dict[str, Any]:
    """Return the element and the files that display a media part, or the reason why it cannot be displayed."""
    path = find(part.digest)
    if path is None:
        frames = [f"{part.digest}-{index}" for index in range(_MAX_FRAMES)]
        kept = [name for name in frames if find(name) is not None]
        return {
            "as": "frames" if kept else "",
            "files": kept,
            "why": _explain_frames(part) if kept else "not stored with the run",
        }
    with path.open("rb") as file:
        kind = detect_content_type(file.read(32))
    shown_as = {"image": "image", "audio": "audio", "video": "video"}.get(kind.partition("/")[0], "")
    if shown_as == "video" and part.kind == "audio":
        shown_as = "audio"
    return {
        "as": shown_as,
        "files": [part.digest],
        "why": "" if shown_as else "unsupported media type",
    }
