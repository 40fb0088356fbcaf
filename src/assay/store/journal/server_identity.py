"""The identity (model and system fingerprint) that servers report with each response.

The identity of the first response is stored once, as the default. A response with another identity stores it in its
row. This shows that a server changed during a run, and which responses are affected, at almost no cost.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from assay.store.journal.rows import build_fact_row

__all__ = ["ServerIdentityTracker", "count_server_identities"]

_FACT_PREFIX = "served:"
_SELECT_IDENTITIES = f"SELECT key, value FROM facts WHERE key LIKE '{_FACT_PREFIX}%'"
_COUNT_OTHER_IDENTITIES = (
    "SELECT source = 'judge', json_extract(details, '$.served'), count(*) FROM answered"
    " WHERE instr(details, '\"served\"') GROUP BY 1, 2"
)

_LOG = logging.getLogger(__name__)

Query = Callable[[str], Iterable[tuple[Any, ...]]]


class ServerIdentityTracker:
    """Tracks the server identities of a journal while it is written."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] | None = None

    def record(self, served: str, who: str, facts: list[tuple[Any, ...]], query: Query) -> str:
        """Return the identity to store with a response: empty for the default. A new identity is added to `facts`.

        `query` reads the journal. It is an argument, because a tracker that refers to its journal keeps the file open
        until the garbage collector finds the cycle.
        """
        if self._names is None:
            self._names = {key: json.loads(value) for key, value in query(_SELECT_IDENTITIES)}
        key = _FACT_PREFIX + who
        names = self._names.setdefault(key, [])
        if served not in names:
            if names:
                whom = f"the judge {who}" if who else "the model"
                _LOG.warning(
                    "the server of %s now reports the identity %s; it was %s", whom, served, names[0]
                )
            names.append(served)
            facts.append(build_fact_row(key, names))
        return "" if served == names[0] else served


def count_server_identities(query: Query) -> dict[str, dict[str, int | None]]:
    """Return the identities by model (empty name) or judge: the default with None, then each other identity with its number
    of responses."""
    names: dict[str, list[str]] = {
        key.removeprefix(_FACT_PREFIX): json.loads(value) for key, value in query(_SELECT_IDENTITIES)
    }
    has_others = any(len(found) > 1 for found in names.values())
    counts = (
        {(bool(judge), name): count for judge, name, count in query(_COUNT_OTHER_IDENTITIES)}
        if has_others
        else {}
    )
    return {
        who: {name: counts.get((bool(who), name), 0) if number else None for number, name in enumerate(found)}
        for who, found in names.items()
    }
