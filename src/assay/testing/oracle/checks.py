"""What came of each record, and the counts over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["CHECKS", "Checks", "tally"]

CHECKS = ("requests", "metrics", "results")


@dataclass(slots=True)
class Checks:
    """The differences found in one record, by check; None where there is none."""

    task: str
    variant: str = "default"
    number: int = 0
    """Its place in the corpus."""

    requests: str | None = None
    metrics: str | None = None
    results: str | None = None
    excluded: str = ""
    """Why the record is counted apart: it depends on a global random state, or on other packages than are here."""

    structure: bool = False
    """A group or tag of which only the structure was recorded: counted by itself."""

    scores_apart: str = ""
    """Why only its scores are counted apart: they need the network, other packages, or were not recorded."""

    @property
    def name(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}#{self.variant}"

    @property
    def first(self) -> tuple[str, str] | None:
        """The first check that differs, and how; of those that count."""
        counted = CHECKS[:1] if self.scores_apart else CHECKS
        return next(((check, found) for check in counted if (found := getattr(self, check))), None)

    def spoil(self, why: str) -> None:
        """The record could not be replayed to its end: whatever was not compared yet differs."""
        for check in CHECKS:
            setattr(self, check, getattr(self, check) or why)


def tally(records: Iterable[Checks]) -> dict[str, Any]:
    """Counts per check in total, those counted apart, and what came of each record by name."""
    total, apart = (
        {check: {"identical": 0, "of": 0} for check in CHECKS},
        {check: {"identical": 0, "of": 0} for check in CHECKS},
    )
    tasks: dict[str, Any] = {}
    reasons: dict[str, int] = {}
    groups = {"identical": 0, "of": 0}
    for checks in records:
        if checks.structure:
            tasks[checks.name] = {"structure": checks.requests or "identical"}
            groups["of"] += 1
            groups["identical"] += checks.requests is None
            continue
        entry = {check: getattr(checks, check) or "identical" for check in CHECKS}
        tasks[checks.name] = {**entry, **({"excluded": checks.excluded} if checks.excluded else {})}
        if checks.scores_apart:
            tasks[checks.name]["scores_apart"] = checks.scores_apart
            reasons[checks.scores_apart] = reasons.get(checks.scores_apart, 0) + 1
        for check in CHECKS:
            aside = checks.excluded or (checks.scores_apart if check != "requests" else "")
            counts = (apart if aside else total)[check]
            counts["of"] += 1
            counts["identical"] += getattr(checks, check) is None
    return {"total": total, "apart": apart, "scores_apart": reasons, "groups": groups, "tasks": tasks}
