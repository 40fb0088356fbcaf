"""What a replay of recorded evaluations may leave different: what is meant, and what is not installed here."""

from __future__ import annotations

from collections.abc import Mapping

from assay.testing.oracle.checks import Checks

__all__ = ["unexplained"]

NOT_INSTALLED = (
    "needs the package",
    "needs a package",
    "ModuleNotFoundError",
    "no value: ",
)


def unexplained(records: list[Checks], known: Mapping[str, str], *excuses: str) -> dict[str, str]:
    """Differences that nobody expects: evaluation -> what differs first.

    `known` are the stages where tasks may differ, `excuses` further words for what is not installed.
    """
    found = {}
    for checks in records:
        first = checks.first
        if checks.excluded or first is None or known.get(checks.task) == first[0]:
            continue
        if not any(words in first[1] for words in (*NOT_INSTALLED, *excuses)):
            found[checks.name] = f"{first[0]}: {first[1]}"
    return found
