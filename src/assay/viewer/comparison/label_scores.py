"""Human labels as scores, so that runs can be compared by what people say about their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.core.errors import UserError
from assay.core.records.verdicts import Estimate
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import (
    DigestKind,
    DocumentExcerpt,
    ScoreColumn,
    ScoreTable,
    ScoreTableSource,
)
from assay.store.runs.labels import read_run_labels
from assay.viewer.analysis.label_agreement import average_labels

__all__ = ["LABEL_METRIC", "LabelScoreTables"]

LABEL_METRIC = "human_label"
_SCORING_FACTS = ("filters", "metrics", "judges", "metric definitions")
"""Facts of a task that do not affect labels."""


class LabelScoreTables:
    """A run whose scores are its human labels: the mean verdict of each labelled document."""

    def __init__(self, source: ScoreTableSource) -> None:
        if not isinstance(source, RunScoreTables):
            raise UserError(
                f"`{source.name}` has no labels", where="--labels", hint="only stored runs have labels"
            )
        self._source = source
        self._labels = average_labels(read_run_labels(source.run.folder))
        if not self._labels:
            raise UserError(
                f"`{source.name}` has no labels",
                where="--labels",
                hint="`assay view` labels documents with the keys 1 (right) and 2 (wrong)",
            )

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def model(self) -> str:
        return self._source.model

    @property
    def facts(self) -> Mapping[str, Any]:
        return self._source.facts

    @property
    def tasks(self) -> Sequence[str]:
        """The tasks with labels."""
        labelled = {task for task, _ in self._labels}
        return [task for task in self._source.tasks if task in labelled]

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """Return the score table of a task with the labels as its only metric."""
        table = self._source.read_score_table(task, kind)
        values = [self._labels.get((task, document)) for document in table.documents]
        column = ScoreColumn(
            pipeline="none", metric=LABEL_METRIC, values=values, aggregation="mean", higher_is_better=True
        )
        facts = {name: value for name, value in table.facts.items() if name not in _SCORING_FACTS}
        return replace(table, columns={("none", LABEL_METRIC): column}, facts=facts)

    def read_estimates(self) -> list[Estimate]:
        """Return no estimates: labels have none."""
        return []

    def field(self, task: str, name: str) -> list[Any]:
        """Return one field of each document."""
        return self._source.field(task, name)

    def field_names(self, task: str) -> list[str]:
        """Return the field names of the first document."""
        return self._source.field_names(task)

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        """Return prompts, responses and answers of some documents."""
        return self._source.read_excerpts(task, documents)

    def close(self) -> None:
        self._source.close()
