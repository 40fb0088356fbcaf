"""Tokens and money of a run: per task, for the whole run, for each judge. Reads the journal; counts nothing twice."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from assay.store.journal.journal import Journal

__all__ = ["UsageTotals", "sum_run_usage", "sum_usage_by_judge", "sum_usage_by_task"]

_SUM_COLUMNS = (
    "count(*), sum(json_extract(s.details, '$.input_tokens')), sum(json_extract(s.details, '$.output_tokens')),"
    " sum(json_extract(s.details, '$.cached_tokens')), sum(json_extract(s.details, '$.cost_usd')),"
    " count(json_extract(s.details, '$.cost_usd'))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What some requests took. Responses from the cache took nothing, and are not in it."""

    requests: int = 0
    """Answered by the model in this run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    """None: nobody charges, or nobody knows."""

    priced: int = 0
    """Requests whose cost is known."""

    @property
    def has_usage(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.input_tokens or self.output_tokens or self.priced)

    def to_json(self) -> dict[str, Any]:
        """As it is exported."""
        return asdict(self)


def sum_run_usage(journal: Journal) -> UsageTotals:
    """What the model took in the whole run, each response once."""
    rows = journal.query(f"SELECT {_SUM_COLUMNS} FROM answered s WHERE s.source = 'model'")
    return _totals_from_row(next(iter(rows)))


def sum_usage_by_task(journal: Journal) -> dict[str, UsageTotals]:
    """What each task took. A response that two tasks share is in both."""
    rows = journal.query(
        f"SELECT r.task, {_SUM_COLUMNS} FROM (SELECT DISTINCT task, fingerprint FROM requests) r"
        " JOIN answered s ON s.fingerprint = r.fingerprint AND s.source = 'model' GROUP BY r.task"
    )
    return {task: _totals_from_row(sums) for task, *sums in rows}


def sum_usage_by_judge(journal: Journal) -> dict[str, UsageTotals]:
    """What each judge took."""
    rows = journal.query(
        f"SELECT r.judge, {_SUM_COLUMNS} FROM (SELECT DISTINCT judge, fingerprint FROM judge_requests) r"
        " JOIN answered s ON s.fingerprint = r.fingerprint AND s.source = 'judge' GROUP BY r.judge"
    )
    return {judge: _totals_from_row(sums) for judge, *sums in rows}


def _totals_from_row(sums: Any) -> UsageTotals:
    requests, read, written, cached, cost, priced = sums
    return UsageTotals(
        requests=requests,
        input_tokens=read or 0,
        output_tokens=written or 0,
        cached_tokens=cached or 0,
        cost_usd=cost if priced else None,
        priced=priced,
    )
