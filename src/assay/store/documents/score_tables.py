"""What somebody's evaluation says of each document of a task, in columns: what comparisons are made of.

A sheet may come from a run of Assay's or from files another harness wrote; whoever compares need not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from assay.core.verdicts import Estimate

__all__ = ["DocumentExcerpt", "ScoreColumn", "ScoreTable", "ScoreTableSource"]

DigestKind = Literal["assay", "files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreColumn:
    """One metric of one filter pipeline, for every document of a sheet."""

    pipeline: str
    metric: str
    values: Sequence[Any]
    """As scoring made them: numbers, or what a corpus metric needs; None where there is no score."""

    aggregation: str = ""
    """The aggregation's name; empty where nobody knows."""

    higher_is_better: bool | None = None
    reported: float | None = None
    """The number that was reported for all documents together."""

    score_key: str = "score"
    """Where a mapping among the values keeps its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """The documents of one task with what was asked, how each ended, and their scores."""

    task: str
    kind: DigestKind
    """How documents and prompts are marked: only marks of one kind can be told apart or found equal."""

    documents: Sequence[int]
    """Their positions in the dataset."""

    content_digests: Sequence[Any]
    """A mark of each document's fields: equal for equal ones; all None where nobody knows them."""

    prompt_digests: Sequence[Any]
    """A mark of what the model was asked for each."""

    endings: Sequence[str]
    """How each ended; empty where nobody knows."""

    columns: Mapping[tuple[str, str], ScoreColumn]
    """By (pipeline, metric), the main one first."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the task was asked with: few-shot examples, generation settings, dataset, version."""

    cluster_key: str = ""
    """The field whose equal values make documents belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentExcerpt:
    """One document, close up."""

    document: int
    prompt: str = ""
    responses: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    """What each filter pipeline made of them."""

    target: str = ""
    finish: str = ""
    input_tokens: int | None = None
    settings: str = ""
    """Generation settings, written out."""


class ScoreTableSource(Protocol):
    """A run, or files that stand for one."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """How all its tasks were asked: template, system message, limit."""
        ...

    @property
    def tasks(self) -> Sequence[str]: ...

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """The sheet of a task, with marks of the wanted kind where there is a choice."""
        ...

    def read_estimates(self) -> list[Estimate]:
        """What it reports, of tasks and of groups."""
        ...

    def field(self, task: str, name: str) -> list[Any]:
        """One field of each document, in the sheet's order; None where a document has no such field."""
        ...

    def field_names(self, task: str) -> list[str]:
        """The fields documents have, as far as the first one tells."""
        ...

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        """Some documents close up."""
        ...

    def close(self) -> None: ...
