"""The page with the list of runs, filtered and sorted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.records.endings import ENDINGS
from assay.viewer.web.rendering import SITE
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntry, RunEntryCache

__all__ = ["build_outcome_bar", "build_runs_context"]

_COUNT_TIME_LIMIT_S = 0.15
"""The time for counting documents before the page is sent; the rest is loaded later."""

_MAX_COUNTED = 50_000
"""Larger runs are counted after the page is sent: that takes longer than the page."""

_SORTS: dict[str, Callable[[RunEntry], Any]] = {
    "started": lambda entry: entry.started or 0.0,
    "model": lambda entry: entry.model.lower(),
    "tasks": lambda entry: ", ".join(entry.top or entry.tasks).lower(),
    "score": lambda entry: _find_first_score(entry),
    "documents": lambda entry: entry.documents,
    "cost": lambda entry: entry.counts.cost_usd or 0.0 if entry.counts else 0.0,
    "duration": lambda entry: entry.seconds or 0.0,
}
_DESCENDING_BY_DEFAULT = {"started", "score", "documents", "cost", "duration"}
"""Columns that sort in descending order by default."""


def build_runs_context(
    catalog: RunCatalog, entries: RunEntryCache, given: Mapping[str, str]
) -> dict[str, Any]:
    """Build the template context of the list of runs."""
    begin = time.monotonic()
    every = []
    for key, folder in catalog.folders().items():
        entry = entries.get(key, folder)
        is_quick = entry.documents <= _MAX_COUNTED and time.monotonic() - begin < _COUNT_TIME_LIMIT_S
        if entry.counts is None and (is_quick or SITE.get() is not None):
            entry = entries.get(key, folder, count=True)
        every.append(entry)
    words = given.get("q", "").lower().split()
    state, tag = given.get("state", ""), given.get("tag", "")
    found = [
        entry
        for entry in every
        if entry.matches(words) and (not state or entry.state == state) and (not tag or tag in entry.tags)
    ]
    sort = given.get("sort", "started")
    sort = sort if sort in _SORTS else "started"
    descending = given.get("order", "desc" if sort in _DESCENDING_BY_DEFAULT else "asc") == "desc"
    found.sort(key=lambda entry: entry.id)
    found.sort(key=_SORTS[sort], reverse=descending)
    return {
        "entries": [
            (
                entry,
                build_outcome_bar(entry.counts.outcomes, entry.documents, entry.state)
                if entry.counts
                else None,
            )
            for entry in found
        ],
        "costs": any(entry.counts is None or entry.counts.cost_usd is not None for entry in every),
        "total": len(every),
        "states": sorted({entry.state for entry in every}),
        "tags": sorted({tag for entry in every for tag in entry.tags}),
        "query": {
            "q": given.get("q", ""),
            "state": state,
            "tag": tag,
            "sort": given.get("sort", ""),
            "order": given.get("order", ""),
        },
        "sort": sort,
        "order": "desc" if descending else "asc",
        "downwards": _DESCENDING_BY_DEFAULT,
        "locations": catalog.locations,
    }


def build_outcome_bar(
    outcomes: Mapping[str, int], documents: int, state: str
) -> list[tuple[str, int, float]]:
    """Return (ending, documents, percentage) in the order of `ENDINGS`; the rest of an unfinished run is `open`."""
    counts: dict[str, int] = {ending: outcomes[ending] for ending in ENDINGS if outcomes.get(ending)}
    left = documents - sum(counts.values())
    if left > 0 and state != "finished":
        counts["open"] = left
    total = sum(counts.values()) or 1
    return [(ending, count, 100 * count / total) for ending, count in counts.items()]


def _find_first_score(entry: RunEntry) -> float:
    value = entry.scores[0].value if entry.scores else None
    return float(value) if isinstance(value, (int, float)) else float("-inf")
