"""What a check found: how bad it is, what, where, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.errors import AssayError, Problems
from assay.core.specs import TaskSpec
from assay.user_code.errors import wrap_user_errors

__all__ = ["Finding", "Findings", "Report", "Severity", "Subject", "guarded"]

Severity = Literal["error", "warning", "note"]
"""A run would fail or mean nothing; a score is probably not what it seems; worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    kind: str
    """The check that found it: `unknown-column`, `cut-answer`, …"""

    what: str
    where: str = ""
    hint: str = ""


class Findings:
    """The findings of one task, in the order they were made; the same one twice is one."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def kinds(self) -> set[str]:
        """The checks that found something."""
        return {finding.kind for finding in self}

    def add(self, severity: Severity, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Keep a finding."""
        finding = Finding(severity=severity, kind=kind, what=what, where=where, hint=hint)
        self._kept.setdefault((what, where), finding)

    def error(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """A run would fail, or its score would mean nothing."""
        self.add("error", kind, what, where, hint)

    def warning(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """The score is probably not what its author thinks."""
        self.add("warning", kind, what, where, hint)

    def note(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Worth knowing; also: what could not be checked."""
        self.add("note", kind, what, where, hint)

    def raised(self, kind: str, error: AssayError, severity: Severity = "error") -> None:
        """Keep an error somebody raised, or each of several."""
        for problem in error.problems if isinstance(error, Problems) else (error,):
            self.add(severity, kind, problem.what, problem.where, problem.hint)


@contextmanager
def guarded(findings: Findings, kind: str, spec: TaskSpec) -> Iterator[None]:
    """Whatever the code inside raises, a task's own code above all, becomes a finding."""
    try:
        with wrap_user_errors(spec):
            yield
    except AssayError as error:
        findings.raised(kind, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A task, a group, or a word that is neither, and what was found about it."""

    name: str
    kind: str
    path: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was looked at."""

    subjects: Sequence[Subject] = field(default_factory=tuple)

    def count(self, severity: Severity) -> int:
        """How many findings are this bad."""
        return sum(finding.severity == severity for finding in self._findings())

    def counts(self) -> dict[str, int]:
        """Tasks and groups looked at, and findings by severity."""
        subjects = Counter(subject.kind for subject in self.subjects)
        return {
            "tasks": subjects["task"],
            "groups": subjects["group"],
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "notes": self.count("note"),
        }

    def kinds(self) -> dict[str, int]:
        """How often each check found something."""
        return dict(Counter(finding.kind for finding in self._findings()).most_common())

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "subjects": [
                {
                    "name": subject.name,
                    "kind": subject.kind,
                    "path": subject.path,
                    "findings": [
                        {
                            "severity": finding.severity,
                            "kind": finding.kind,
                            "what": finding.what,
                            "where": finding.where,
                            "hint": finding.hint,
                        }
                        for finding in subject.findings
                    ],
                }
                for subject in self.subjects
            ],
            "counts": self.counts(),
            "kinds": self.kinds(),
        }

    def _findings(self) -> Iterable[Finding]:
        return (finding for subject in self.subjects for finding in subject.findings)
