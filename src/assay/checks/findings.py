"""Findings of a check (severity, what, where, hint), their kinds, and the report over all subjects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.errors import AssayError, ErrorGroup, MissingPackage
from assay.core.installation import merge_install_commands
from assay.core.records.specs import TaskSpec
from assay.user_code.errors import wrap_user_errors

__all__ = ["FINDING_KINDS", "Finding", "Findings", "Report", "Severity", "Subject", "collect_errors"]

Severity = Literal["error", "warning", "note"]
"""error: a run fails or its score is meaningless; warning: the score is probably wrong; note: worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem."""

    severity: Severity
    kind: str
    """A key of `FINDING_KINDS`."""

    what: str
    where: str = ""
    hint: str = ""


class Findings:
    """The findings of one task in the order they were added, without duplicates."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str], Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def __len__(self) -> int:
        return len(self._findings)

    def kinds(self) -> set[str]:
        """Return the kinds of all findings."""
        return {finding.kind for finding in self}

    def add(self, severity: Severity, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Add a finding."""
        finding = Finding(severity=severity, kind=kind, what=what, where=where, hint=hint)
        self._findings.setdefault((what, where), finding)

    def error(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Add an error: a run would fail, or its score would be meaningless."""
        self.add("error", kind, what, where, hint)

    def warning(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Add a warning: the score is probably not what the author intends."""
        self.add("warning", kind, what, where, hint)

    def note(self, kind: str, what: str, where: str = "", hint: str = "") -> None:
        """Add a note: worth knowing, or something that could not be checked."""
        self.add("note", kind, what, where, hint)

    def add_exception(self, kind: str, error: AssayError, severity: Severity = "error") -> None:
        """Add a raised error, or each error of a group."""
        for problem in error.errors if isinstance(error, ErrorGroup) else (error,):
            found = "package" if isinstance(problem, MissingPackage) else kind
            self.add(severity, found, problem.what, problem.where, problem.hint)


@contextmanager
def collect_errors(findings: Findings, kind: str, spec: TaskSpec) -> Iterator[None]:
    """Turn errors raised in the block, including those of task code, into findings."""
    try:
        with wrap_user_errors(spec, timed=kind != "data"):
            yield
    except AssayError as error:
        findings.add_exception(kind, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A task, a group, or a word that is neither, with its findings."""

    name: str
    kind: str
    path: str = ""
    findings: tuple[Finding, ...] = ()
    looked_at: int = 0
    """Number of documents that were rendered."""

    total: int = 0
    """Number of documents; 0 if the data was not opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a check: all subjects with their findings."""

    subjects: Sequence[Subject] = field(default_factory=tuple)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self._iter_findings())

    def counts(self) -> dict[str, int]:
        """Return the numbers of tasks, groups, and findings by severity."""
        subjects = Counter(subject.kind for subject in self.subjects)
        return {
            "tasks": subjects["task"],
            "groups": subjects["group"],
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "notes": self.count("note"),
        }

    def kinds(self) -> dict[str, int]:
        """Return the number of findings of each kind, most frequent first."""
        return dict(Counter(finding.kind for finding in self._iter_findings()).most_common())

    def install_command(self) -> str:
        """Return one pip command for all missing packages; empty if none is missing."""
        return merge_install_commands(
            finding.hint for finding in self._iter_findings() if finding.kind == "package"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "subjects": [
                {
                    "name": subject.name,
                    "kind": subject.kind,
                    "path": subject.path,
                    "documents": {"looked_at": subject.looked_at, "total": subject.total},
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
            "install": self.install_command(),
        }

    def _iter_findings(self) -> Iterable[Finding]:
        return (finding for subject in self.subjects for finding in subject.findings)


FINDING_KINDS: Mapping[str, str] = {
    "yaml": "the file is not valid YAML, or an included file is missing",
    "key": "an unknown key, or a value of the wrong type",
    "repeated-key": "a key that appears twice in one mapping",
    "name": "no task, group, file or folder has this name",
    "defined-twice": "two files define the same name",
    "function": "a `!function` that does not exist, or a helper file that cannot be imported",
    "parameters": "a function that does not accept the arguments it is called with",
    "package": "a package that is not installed",
    "template": "a template that does not compile, or a prompt of `use_prompt` that does not exist",
    "written-line-end": "a backslash and an n instead of a line break",
    "choice-not-a-template": "a choice in a list that looks like a template but is used as plain text",
    "variant": "a prompt variant that cannot be rendered, or that has the same prompts as the task",
    "column": "a name in a template, or a single word, that is not a column",
    "scoring": "an unknown metric, aggregation or filter, or an argument it does not accept",
    "metric-fit": "a task without metrics, a metric that the output type or `process_results` never reports, or an aggregation that does not fit the metric",
    "metric-key": "a misspelt key of a metric",
    "repeated-metric": "a metric listed twice",
    "unsaid": "a custom metric without `aggregation` or `higher_is_better`",
    "regex": "a pattern without a group, one that matches the empty string, or one that does not compile",
    "filter-list": "a pipeline that returns a list of answers",
    "filter-order": "a filter after the one that selects the answer",
    "repeated-pipeline": "two pipelines with the same name",
    "repeats": "repeats that are all identical, or too few for a filter",
    "sampling": "sampling settings that contradict each other",
    "setting": "a misspelt generation setting",
    "until": "a stop string that has no effect",
    "rounds": "a dialogue without a function that creates its later rounds, or without one that scores it",
    "agent": "an unknown solver, tool or environment of an agent, or an option that it does not have",
    "max-tokens": "a token limit that is too small for the targets, or several limits",
    "no-effect": "settings that the task does not use",
    "no-target": "the task defines no target",
    "target-not-an-answer": "the target is not a complete answer, as the task says",
    "empty-prompt": "an empty prompt",
    "data": "the dataset cannot be loaded, or `process_docs` fails",
    "split": "a split that does not exist or has no documents",
    "not-checked": "something that could not be checked, such as an unavailable dataset",
    "document": "a document that cannot be rendered",
    "media": "an image, audio or video file that is missing or unreadable",
    "target-not-a-choice": "the target is not among the choices",
    "repeated-choice": "a duplicate choice",
    "one-choice": "only one choice",
    "spaces": "two spaces or no space between question and answer",
    "cut-answer": "a stop string that occurs in the target",
    "fewshot": "too few examples, or an unknown sampler",
    "fewshot-leak": "examples that leak answers",
    "unsafe-code": "the task executes code that the model writes",
    "group": "a group without members, or with invalid members",
    "member": "a member that does not exist",
    "cycle": "a group that contains itself",
    "group-metric": "a metric or pipeline that no member reports",
    "cluster": "a column that looks like a cluster of documents, or a `cluster_key` that is not a column",
    "check": "an error in task code during the check",
}
"""The kinds of findings and what they mean."""
