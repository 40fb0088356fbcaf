"""Score tables: the scores of all documents of a task, by metric. Comparisons are computed from them.

A score table can come from a run of Assay or from result files of another harness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from assay.core.records.verdicts import Estimate

__all__ = ["DocumentExcerpt", "ScoreColumn", "ScoreTable", "ScoreTableSource"]

DigestKind = Literal["assay", "files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreColumn:
    """The scores of one metric and filter pipeline, for all documents of a table."""

    pipeline: str
    metric: str
    values: Sequence[Any]
    """Numbers, or the inputs of a corpus metric; None for unscored documents."""

    aggregation: str = ""
    """Name of the aggregation; empty if unknown."""

    higher_is_better: bool | None = None
    reported: float | None = None
    """The reported value over all documents."""

    score_key: str = "score"
    """The key of the score if values are mappings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """The documents of one task: digests, endings and scores."""

    task: str
    kind: DigestKind
    """How the digests are computed; only digests of the same kind can be compared."""

    documents: Sequence[int]
    """Indices in the dataset."""

    content_digests: Sequence[Any]
    """Digest of the fields of each document; None if unknown."""

    prompt_digests: Sequence[Any]
    """Digest of the prompt of each document."""

    endings: Sequence[str]
    """Ending of each document; empty if unknown."""

    columns: Mapping[tuple[str, str], ScoreColumn]
    """By (pipeline, metric), the main metric first."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task: few-shot examples, generation settings, dataset, version."""

    cluster_key: str = ""
    """The field whose values define clusters of documents."""

    fields_of: str = ""
    """The program that named the fields of the documents; empty if they are those of the dataset."""

    attempts: Mapping[tuple[str, str], Mapping[int, tuple[float, ...]]] = field(default_factory=dict)
    """The scores of the attempts of agents by document, in the order of their seeds; by (pipeline, metric)."""

    subset: Mapping[str, Any] | None = None
    """The weighted subset that the documents are, as the run stores it; None: all documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentExcerpt:
    """Prompt, responses and answers of one document."""

    document: int
    prompt: str = ""
    responses: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    """Answer by filter pipeline."""

    target: str = ""
    finish: str = ""
    input_tokens: int | None = None
    settings: str = ""
    """Generation settings as JSON."""


class ScoreTableSource(Protocol):
    """A source of score tables: a run, or result files of another harness."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Settings of all tasks: chat template, system message, limit."""
        ...

    @property
    def tasks(self) -> Sequence[str]: ...

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """Return the score table of a task, with digests of the given kind if supported."""
        ...

    def read_estimates(self) -> list[Estimate]:
        """Return the reported estimates of tasks and groups."""
        ...

    def field(self, task: str, name: str) -> list[Any]:
        """Return one field of each document, in table order; None for documents without it."""
        ...

    def field_names(self, task: str) -> list[str]:
        """Return the field names of the first document."""
        ...

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        """Return prompts, responses and answers of some documents."""
        ...

    def close(self) -> None: ...
