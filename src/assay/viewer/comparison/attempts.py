"""Pair the attempts of agents by document and seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from assay.store.documents.score_tables import ScoreTable

__all__ = ["pair_attempts"]


def pair_attempts(first: ScoreTable, second: ScoreTable) -> tuple[ScoreTable, ScoreTable, str]:
    """Return tables whose scores are means over the seeds that both runs have, and a note if they have different ones.

    The score of a document is the mean of its attempts, and attempt i has the same seeds in both runs: those of the
    environment and of the user. The difference of two means over the same seeds is the mean of the paired differences.
    Documents are the units of the comparison, because the attempts of one document are not independent.
    """
    counts = [_count_attempts(table) for table in (first, second)]
    if 0 in counts or counts[0] == counts[1]:
        return first, second, ""
    shared = min(counts)
    what = "attempt has" if shared == 1 else f"{shared} attempts have"
    note = (
        f"{first.task}: {counts[0]} attempts per document in the first run, {counts[1]} in the second; "
        f"only the first {what} a partner with the same seed and {'is' if shared == 1 else 'are'} compared"
    )
    return _keep_attempts(first, shared), _keep_attempts(second, shared), note


def _count_attempts(table: ScoreTable) -> int:
    """Return how many attempts the documents have: the smallest number; 1 for scored agents without repeats."""
    lengths = {len(scores) for known in table.attempts.values() for scores in known.values()}
    return min(lengths, default=0)


def _keep_attempts(table: ScoreTable, count: int) -> ScoreTable:
    columns = dict(table.columns)
    for key, known in table.attempts.items():
        if key in columns:
            columns[key] = replace(columns[key], values=_average(table, key, known, count), reported=None)
    return replace(table, columns=columns)


def _average(
    table: ScoreTable, key: tuple[str, str], known: Mapping[int, tuple[float, ...]], count: int
) -> list[float | None]:
    return [
        sum(known[document][:count]) / count if document in known and value is not None else value
        for document, value in zip(table.documents, table.columns[key].values, strict=True)
    ]
