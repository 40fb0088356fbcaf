"""The list of runs: filtered, sorted, with what is known of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.endings import ENDINGS
from assay.viewer.web.cards import Card, Cards
from assay.viewer.web.library import Library

__all__ = ["outcome_bar", "runs_context"]

_PATIENCE_S = 0.15
"""Time for counting before the page is sent; what is not counted then is filled in later."""

_SORTS: dict[str, Callable[[Card], Any]] = {
    "started": lambda card: card.started or 0.0,
    "model": lambda card: card.model.lower(),
    "tasks": lambda card: ", ".join(card.top or card.tasks).lower(),
    "score": lambda card: _first_score(card),
    "documents": lambda card: card.documents,
    "cost": lambda card: card.counts.cost_usd or 0.0 if card.counts else 0.0,
    "duration": lambda card: card.seconds or 0.0,
}
_DOWNWARDS = {"started", "score", "documents", "cost", "duration"}
"""Sorted with the largest first, unless asked otherwise."""


def runs_context(library: Library, cards: Cards, given: Mapping[str, str]) -> dict[str, Any]:
    """What the page of runs shows."""
    begin = time.monotonic()
    every = [
        cards.card(key, folder, count=time.monotonic() - begin < _PATIENCE_S)
        for key, folder in library.folders().items()
    ]
    words = given.get("q", "").lower().split()
    state, tag = given.get("state", ""), given.get("tag", "")
    found = [
        card
        for card in every
        if card.matches(words) and (not state or card.state == state) and (not tag or tag in card.tags)
    ]
    sort = given.get("sort", "started")
    sort = sort if sort in _SORTS else "started"
    turned = given.get("order", "desc" if sort in _DOWNWARDS else "asc") == "desc"
    found.sort(key=lambda card: card.id)
    found.sort(key=_SORTS[sort], reverse=turned)
    return {
        "cards": [
            (card, outcome_bar(card.counts.outcomes, card.documents, card.state) if card.counts else None)
            for card in found
        ],
        "costs": any(card.counts is None or card.counts.cost_usd is not None for card in every),
        "total": len(every),
        "states": sorted({card.state for card in every}),
        "tags": sorted({tag for card in every for tag in card.tags}),
        "query": {
            "q": given.get("q", ""),
            "state": state,
            "tag": tag,
            "sort": given.get("sort", ""),
            "order": given.get("order", ""),
        },
        "sort": sort,
        "order": "desc" if turned else "asc",
        "downwards": _DOWNWARDS,
        "places": library.places,
    }


def outcome_bar(outcomes: Mapping[str, int], documents: int, state: str) -> list[tuple[str, int, float]]:
    """(ending, documents, share in percent) in the order of endings; what is left is `open` while nobody finished."""
    counts: dict[str, int] = {ending: outcomes[ending] for ending in ENDINGS if outcomes.get(ending)}
    left = documents - sum(counts.values())
    if left > 0 and state != "finished":
        counts["open"] = left
    total = sum(counts.values()) or 1
    return [(ending, count, 100 * count / total) for ending, count in counts.items()]


def _first_score(card: Card) -> float:
    value = card.scores[0].value if card.scores else None
    return float(value) if isinstance(value, (int, float)) else float("-inf")
