"""Token usage and cost of a run: in total, by task and by judge, from the journal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from assay.store.journal.journal import Journal

__all__ = [
    "TruncationTotals",
    "UsageTotals",
    "count_truncated_prompts",
    "sum_run_usage",
    "sum_usage_by_judge",
    "sum_usage_by_task",
]

_SUM_COLUMNS = (
    "count(*), sum(json_extract(s.details, '$.input_tokens')), sum(json_extract(s.details, '$.output_tokens')),"
    " sum(json_extract(s.details, '$.cached_tokens')), sum(json_extract(s.details, '$.cost_usd')),"
    " count(json_extract(s.details, '$.cost_usd')), sum(json_extract(s.details, '$.reasoning_tokens'))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Usage of a set of requests. Responses from the cache are not included."""

    requests: int = 0
    """Requests answered by the model in this run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """Output tokens that are reasoning."""

    cost_usd: float | None = None
    """None: free or unknown."""

    priced: int = 0
    """Requests whose cost is known."""

    @property
    def has_usage(self) -> bool:
        """Whether any usage is known."""
        return bool(self.input_tokens or self.output_tokens or self.priced)

    def to_json(self) -> dict[str, Any]:
        """Return the totals as exported."""
        return asdict(self)


def sum_run_usage(journal: Journal) -> UsageTotals:
    """Return the usage of the model over the whole run, each response once."""
    rows = journal.query(f"SELECT {_SUM_COLUMNS} FROM main.answered s WHERE s.source = 'model'")
    return _totals_from_row(next(iter(rows)))


def sum_usage_by_task(journal: Journal) -> dict[str, UsageTotals]:
    """Return the usage by task. A response shared by two tasks counts in both."""
    rows = journal.query(
        f"SELECT r.task, {_SUM_COLUMNS} FROM (SELECT DISTINCT task, fingerprint FROM main.requests) r"
        " JOIN main.answered s ON s.fingerprint = r.fingerprint AND s.source = 'model' GROUP BY r.task"
    )
    return {task: _totals_from_row(row) for task, *row in rows}


def sum_usage_by_judge(journal: Journal) -> dict[str, UsageTotals]:
    """Return the usage by judge."""
    rows = journal.query(
        f"SELECT r.judge, {_SUM_COLUMNS} FROM (SELECT DISTINCT judge, fingerprint FROM main.judge_requests) r"
        " JOIN main.answered s ON s.fingerprint = r.fingerprint AND s.source = 'judge' GROUP BY r.judge"
    )
    return {judge: _totals_from_row(row) for judge, *row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationTotals:
    """The prompts of a task that were shortened because they exceed the context length."""

    requests: int
    """Requests with a truncated prompt."""

    documents: int
    """Documents with such a request."""

    asked: int
    """All answered requests of the task."""

    truncated_tokens: int
    """Tokens removed from these prompts."""

    input_tokens: int
    """Tokens that remain of these prompts."""

    def to_json(self) -> dict[str, Any]:
        """Return the totals as exported."""
        return asdict(self)


_TRUNCATED = "json_extract(s.details, '$.truncated_tokens')"


def count_truncated_prompts(journal: Journal) -> dict[str, TruncationTotals]:
    """Return the truncated prompts of the model by task; tasks without any are left out."""
    (found,) = journal.query(f"SELECT EXISTS (SELECT 1 FROM main.answered s WHERE {_TRUNCATED} > 0)")
    if not found[0]:
        return {}
    rows = journal.query(
        f"SELECT r.task, count({_TRUNCATED}), count(DISTINCT CASE WHEN {_TRUNCATED} > 0 THEN r.document END), count(*),"
        f" sum({_TRUNCATED}), sum(CASE WHEN {_TRUNCATED} > 0 THEN json_extract(s.details, '$.input_tokens') END)"
        " FROM main.requests r JOIN main.answered s ON s.fingerprint = r.fingerprint GROUP BY r.task"
    )
    names = ("requests", "documents", "asked", "truncated_tokens", "input_tokens")
    return {
        task: TruncationTotals(**{name: int(value or 0) for name, value in zip(names, counts, strict=True)})
        for task, *counts in rows
        if counts[0]
    }


def _totals_from_row(row: Any) -> UsageTotals:
    requests, input_tokens, output_tokens, cached, cost, priced, reasoning = row
    return UsageTotals(
        requests=requests,
        input_tokens=input_tokens or 0,
        output_tokens=output_tokens or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=reasoning or 0,
        cost_usd=cost if priced else None,
        priced=priced,
    )
