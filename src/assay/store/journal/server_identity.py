"""Who a server said it is, answer by answer, at next to no cost.

The name it gives with the first answer is kept once, as the usual one; an answer under another name keeps that name
beside it. So a server that became another one in the middle of a run is known, and with it which answers are whose.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

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
    """The names that answers of one journal came under, as it is written."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._names: dict[str, list[str]] | None = None

    def record(self, served: str, who: str, facts: list[tuple[str, str]]) -> str:
        """What to keep beside an answer: its name, where it is not the usual one. A new name becomes a fact."""
        if self._names is None:
            self._names = {key: json.loads(value) for key, value in self._query(_SELECT_IDENTITIES)}
        key = _FACT_PREFIX + who
        names = self._names.setdefault(key, [])
        if served not in names:
            if names:
                whom = f"the judge {who}" if who else "the model"
                _LOG.warning("the server of %s says it is %s now; it was %s", whom, served, names[0])
            names.append(served)
            facts.append((key, json.dumps(names)))
        return "" if served == names[0] else served


def count_server_identities(query: Query) -> dict[str, dict[str, int | None]]:
    """Model (an empty name) or judge -> the names its answers came under: the first one, which is that of all the rest
    (None), then each of the others with the number of its answers."""
    names: dict[str, list[str]] = {
        key.removeprefix(_FACT_PREFIX): json.loads(value) for key, value in query(_SELECT_IDENTITIES)
    }
    several = any(len(found) > 1 for found in names.values())
    counts = (
        {(bool(judge), name): count for judge, name, count in query(_COUNT_OTHER_IDENTITIES)}
        if several
        else {}
    )
    return {
        who: {name: counts.get((bool(who), name), 0) if number else None for number, name in enumerate(found)}
        for who, found in names.items()
    }
