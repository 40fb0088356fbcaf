"""The page of a document: prompt, media, responses, filters, verdicts and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.records.responses import Response
from assay.store.documents.details import DocumentRecord, RequestRecord
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.viewer.documents.choices import build_choices
from assay.viewer.documents.filter_trace import build_filter_traces
from assay.viewer.documents.prompts import MediaPart, PromptMessage, parse_prompt
from assay.viewer.web.pages.token_probabilities import (
    PROBABILITY_LEVELS,
    build_response_tokens,
    explain_missing_tokens,
)

__all__ = ["build_document_context", "describe_media"]

_MAX_FRAMES = 8


def build_document_context(
    record: DocumentRecord, facts: Mapping[str, Any], folder: Path, *, tokens: bool = False
) -> dict[str, Any]:
    """Build the template context of a document; `facts` are those of its task, `tokens`: whether the run stores tokens."""
    config = facts.get("config", {})
    delimiter = str(config.get("fewshot_delimiter") or "\n\n")
    prompts = [
        parse_prompt(prompt, fields=record.fields, n_shot=facts.get("n_shot"), delimiter=delimiter)
        for prompt in record.prompts
    ]
    likelihoods = [request for request in record.asked if request.kind == "likelihood"]
    return {
        "record": record,
        "prompts": prompts,
        "media": _collect_media(prompts, folder),
        "choices": build_choices(likelihoods, record.target),
        "responses": [request for request in record.asked if request.kind != "likelihood"],
        "response_text": _response_text,
        "tokens": build_response_tokens(record.asked),
        "token_levels": PROBABILITY_LEVELS,
        "truncated_tokens": max(
            (
                one.response.usage.truncated_tokens
                for one in record.asked
                if one.response is not None and one.response.usage is not None
            ),
            default=0,
        ),
        "missing_tokens": explain_missing_tokens(record.asked, wanted=tokens),
        "traces": build_filter_traces(record, facts),
        "judges": [
            {
                "turn": turn,
                "messages": parse_prompt(turn.prompt, fields={}, n_shot=0),
                "reply": "" if turn.reply is None else _response_text(turn.reply),
            }
            for turn in record.judges
        ],
        "n_shot": facts.get("n_shot"),
        "settings": _collect_settings(record.asked),
        "output_type": facts.get("output_type", ""),
    }


def _response_text(response: Response) -> str:
    value = response.value
    return value if isinstance(value, str) else f"log-probability {value.total:.4f}"


def _collect_settings(requests: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in requests:
        if one.settings and one.settings not in found:
            found.append(one.settings)
    return found


def _collect_media(prompts: Sequence[Sequence[PromptMessage]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return digest -> description of each media file in the prompts."""
    found: dict[str, dict[str, Any]] = {}
    for messages in prompts:
        for message in messages:
            for part in message.parts:
                if isinstance(part, MediaPart) and part.digest not in found:
                    found[part.digest] = describe_media(part, lambda digest: find_media_file(folder, digest))
    return found


def describe_media(part: MediaPart, find: Callable[[str], Path | None]) -> dict[str, Any]:
    """Return the element and the files that display a media part, or the reason why it cannot be displayed."""
    path = find(part.digest)
    if path is None:
        frames = [f"{part.digest}-{index}" for index in range(_MAX_FRAMES)]
        kept = [name for name in frames if find(name) is not None]
        return {
            "as": "frames" if kept else "",
            "files": kept,
            "why": "" if kept else "not stored with the run",
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
