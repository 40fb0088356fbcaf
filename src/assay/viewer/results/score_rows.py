"""The rows of a results table in reading order: groups before their members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.number_format import format_number

__all__ = ["iterate_breakdown", "iterate_score_rows"]


def iterate_score_rows(run: Run) -> Iterator[tuple[int, str, dict[str, Any], Estimate | None]]:
    """Yield (depth, name, facts, estimate): a group before its members, each member one level deeper."""
    by_name: dict[str, list[Estimate]] = {}
    for estimate in run.estimates:
        by_name.setdefault(estimate.task, []).append(estimate)
    for name in run.facts.get("top", []):
        yield from _iterate_rows(run, by_name, name, 0)


def _iterate_rows(
    run: Run, by_name: dict[str, list[Estimate]], name: str, depth: int
) -> Iterator[tuple[int, str, dict[str, Any], Estimate | None]]:
    facts = run.groups.get(name) or run.tasks.get(name, {})
    estimates = by_name.get(name, [])
    for estimate in estimates or [None]:  # type: ignore[list-item]
        yield depth, name, facts, estimate
    for member in facts.get("members", ()):
        yield from _iterate_rows(run, by_name, member, depth + 1)


def iterate_breakdown(value: Any, *, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, number) for each part of an aggregation that returns a mapping; nested names are joined.

    >>> list(iterate_breakdown({"logos": 0.5, "maps": {"old": 1}}))
    [('logos', '0.5000'), ('maps / old', '1')]
    """
    for key, part in value.items() if isinstance(value, dict) else ():
        name = f"{prefix} / {key}" if prefix else str(key)
        if isinstance(part, dict):
            yield from iterate_breakdown(part, prefix=name)
        else:
            yield name, format_number(part)
