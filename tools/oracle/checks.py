"""The outcome of each replayed record, and the counts over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["CHECKS", "RecordChecks", "count_checks"]

CHECKS = ("requests", "metrics", "results")


@dataclass(slots=True)
class RecordChecks:
    """The first difference found by each check of a record; None where both sides are identical."""

    task: str
    variant: str = "default"
    number: int = 0
    """Position in the corpus."""

    requests: str | None = None
    metrics: str | None = None
    results: str | None = None
    excluded: str = ""
    """Why the record is counted apart: it depends on a global random state or on packages that are missing here."""

    structure: bool = False
    """True for a group or tag of which only the structure was recorded; counted separately."""

    scores_apart: str = ""
    """Why only the scores are counted apart: they need the network or other packages, or were not recorded."""

    @property
    def name(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}#{self.variant}"

    @property
    def first(self) -> tuple[str, str] | None:
        """The first check that differs, with the difference; checks that are counted apart are left out."""
        counted = CHECKS[:1] if self.scores_apart else CHECKS
        return next(((check, found) for check in counted if (found := getattr(self, check))), None)

    def fail_remaining(self, reason: str) -> None:
        """Mark every check that has not found a difference yet as failed: the replay stopped before its end."""
        for check in CHECKS:
            setattr(self, check, getattr(self, check) or reason)


def count_checks(records: Iterable[RecordChecks]) -> dict[str, Any]:
    """Return the counts per check in total and apart, and the outcome of each record by name."""
    total = {check: {"identical": 0, "of": 0} for check in CHECKS}
    apart = {check: {"identical": 0, "of": 0} for check in CHECKS}
    tasks: dict[str, Any] = {}
    reasons: dict[str, int] = {}
    groups = {"identical": 0, "of": 0}
    for record in records:
        if record.structure:
            tasks[record.name] = {"structure": record.requests or "identical"}
            groups["of"] += 1
            groups["identical"] += record.requests is None
            continue
        entry = {check: getattr(record, check) or "identical" for check in CHECKS}
        tasks[record.name] = {**entry, **({"excluded": record.excluded} if record.excluded else {})}
        if record.scores_apart:
            tasks[record.name]["scores_apart"] = record.scores_apart
            reasons[record.scores_apart] = reasons.get(record.scores_apart, 0) + 1
        for check in CHECKS:
            is_apart = record.excluded or (record.scores_apart if check != "requests" else "")
            counts = (apart if is_apart else total)[check]
            counts["of"] += 1
            counts["identical"] += getattr(record, check) is None
    return {"total": total, "apart": apart, "scores_apart": reasons, "groups": groups, "tasks": tasks}
