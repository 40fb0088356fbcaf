"""One document: what was asked, shown, answered, filtered and judged, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.responses import LogProbability, Response
from assay.store.media_files import content_type, media_path
from assay.store.one_document import Asked, DocumentRecord
from assay.viewer.prompts import MediaPart, ShownMessage, read_prompt
from assay.viewer.web.filter_steps import filter_traces
from assay.viewer.web.token_marks import LEVELS, shown_tokens, why_unknown

__all__ = ["choices_of", "document_context", "medium_facts"]

_MOST_FRAMES = 8


def document_context(
    record: DocumentRecord, facts: Mapping[str, Any], folder: Path, *, tokens: bool = False
) -> dict[str, Any]:
    """What the page of a document shows; `facts` are those of its task, `tokens` whether the run was to keep them."""
    config = facts.get("config", {})
    delimiter = str(config.get("fewshot_delimiter") or "\n\n")
    prompts = [
        read_prompt(prompt, fields=record.fields, n_shot=facts.get("n_shot"), delimiter=delimiter)
        for prompt in record.prompts
    ]
    likelihoods = [asked for asked in record.asked if asked.kind == "likelihood"]
    return {
        "record": record,
        "prompts": prompts,
        "media": _media(prompts, folder),
        "choices": choices_of(likelihoods, record.target),
        "responses": [asked for asked in record.asked if asked.kind != "likelihood"],
        "said": _said,
        "tokens": shown_tokens(record.asked),
        "token_levels": LEVELS,
        "no_tokens": why_unknown(record.asked, wanted=tokens),
        "traces": filter_traces(record, facts),
        "judges": [
            {
                "turn": turn,
                "messages": read_prompt(turn.prompt, fields={}, n_shot=0),
                "reply": "" if turn.reply is None else _said(turn.reply),
            }
            for turn in record.judges
        ],
        "n_shot": facts.get("n_shot"),
        "settings": _settings(record.asked),
        "output_type": facts.get("output_type", ""),
    }


def choices_of(asked: Sequence[Asked], target: Any) -> list[dict[str, Any]]:
    """Choices with their log-probabilities, and each one's share of the probability of all.

    The likeliest by itself is what `acc` takes, the likeliest per byte what `acc_norm` takes.
    """
    known: list[tuple[Asked, LogProbability]] = [
        (one, one.response.value)
        for one in asked
        if one.response is not None and isinstance(one.response.value, LogProbability)
    ]
    totals = [value.total for _, value in known if math.isfinite(value.total)]
    top = max(totals, default=0.0)
    weights = [math.exp(value.total - top) if math.isfinite(value.total) else 0.0 for _, value in known]
    whole = sum(weights) or 1.0
    per_byte = [_per_byte(one, value.total) for one, value in known]
    best = max(range(len(known)), key=lambda at: weights[at], default=-1)
    best_norm = max(range(len(known)), key=lambda at: per_byte[at], default=-1)
    return [
        {
            "number": one.number,
            "prompt": one.prompt,
            "text": one.continuation,
            "total": value.total,
            "per_byte": per_byte[at],
            "greedy": value.greedy,
            "share": 100 * weights[at] / whole,
            "best": at == best,
            "best_norm": at == best_norm,
            "is_target": _is_target(one, target),
        }
        for at, (one, value) in enumerate(known)
    ]


def _per_byte(asked: Asked, total: float) -> float:
    size = len(asked.continuation.encode("utf-8", "replace")) or 1
    return total / size if math.isfinite(total) else -math.inf


def _is_target(asked: Asked, target: Any) -> bool:
    if isinstance(target, bool):
        return False
    if isinstance(target, int):
        return asked.number == target
    if isinstance(target, str) and target.strip().isdecimal():
        return asked.number == int(target)
    return isinstance(target, str) and asked.continuation.strip() == target.strip()


def _said(response: Response) -> str:
    value = response.value
    return value if isinstance(value, str) else f"log-probability {value.total:.4f}"


def _settings(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in asked:
        if one.settings and one.settings not in found:
            found.append(one.settings)
    return found


def _media(prompts: Sequence[Sequence[ShownMessage]], folder: Path) -> dict[str, dict[str, Any]]:
    """By hash: what there is to show of each medium of the prompts."""
    found: dict[str, dict[str, Any]] = {}
    for messages in prompts:
        for message in messages:
            for part in message.parts:
                if isinstance(part, MediaPart) and part.digest not in found:
                    found[part.digest] = medium_facts(part, lambda digest: media_path(folder, digest))
    return found


def medium_facts(part: MediaPart, find: Callable[[str], Path | None]) -> dict[str, Any]:
    """How a medium is shown: by which element, from which files; or why it is not."""
    path = find(part.digest)
    if path is None:
        frames = [f"{part.digest}-{at}" for at in range(_MOST_FRAMES)]
        kept = [name for name in frames if find(name) is not None]
        return {"as": "frames" if kept else "", "files": kept, "why": "" if kept else "not kept with the run"}
    with path.open("rb") as file:
        kind = content_type(file.read(32))
    shown_as = {"image": "image", "audio": "audio", "video": "video"}.get(kind.partition("/")[0], "")
    if shown_as == "video" and part.kind == "audio":
        shown_as = "audio"
    return {
        "as": shown_as,
        "files": [part.digest],
        "why": "" if shown_as else "of a kind that browsers do not show",
    }
