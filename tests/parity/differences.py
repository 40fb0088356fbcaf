"""Separate expected differences of a replay (intended, or a missing package) from unexpected ones."""

from __future__ import annotations

from collections.abc import Mapping

from tools.oracle.checks import RecordChecks

__all__ = ["find_unexplained"]

NOT_INSTALLED = (
    "needs the package",
    "needs a package",
    "ModuleNotFoundError",
    "no value: ",
)


def find_unexplained(records: list[RecordChecks], known: Mapping[str, str], *excuses: str) -> dict[str, str]:
    """Return the unexpected differences: evaluation -> first difference.

    `known` maps a task to the check that may differ; `excuses` are further texts of errors about missing packages.
    """
    found = {}
    for checks in records:
        first = checks.first
        if checks.excluded or first is None or known.get(checks.task) == first[0]:
            continue
        if not any(words in first[1] for words in (*NOT_INSTALLED, *excuses)):
            found[checks.name] = f"{first[0]}: {first[1]}"
    return found
