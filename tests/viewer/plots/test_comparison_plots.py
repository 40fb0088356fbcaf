"""The scores of two runs against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from assay.core.errors import UnknownName
from assay.core.records.verdicts import Estimate
from assay.store.documents.score_tables import (
    DigestKind,
    DocumentExcerpt,
    ScoreColumn,
    ScoreTable,
    ScoreTableSource,
)
from assay.store.runs.run import Run
from assay.viewer.charts import LIGHT
from assay.viewer.comparison.sources import open_source
from assay.viewer.plots.comparison_plots import build_document_scatter, build_task_scatter

Sources = tuple[ScoreTableSource, ScoreTableSource]


@pytest.fixture(scope="module")
def sources(plot_runs: tuple[Run, Run]) -> Iterator[Sources]:
    first, second = (open_source(Run(run.folder)) for run in plot_runs)
    yield first, second
    first.close()
    second.close()


def test_tasks_of_two_runs(sources: Sources) -> None:
    plot = build_task_scatter(*sources)
    rows = {row[0]: row for row in plot.table.rows}
    assert rows["sums"][2] == 0.75 and rows["sums"][5] == 0.8
    assert rows["sums"][3] < 0.75 < rows["sums"][4]
    assert plot.summary.startswith("second-model is better on 1 of 2 tasks and worse on 0")
    assert plot.build is not None
    figure = plot.build(LIGHT)
    assert [trace.get("name") for trace in figure["data"]] == [None, "better (1)", "equal (1)"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "first-model"


def test_documents_with_the_same_pair_of_scores_are_one_bubble(sources: Sources) -> None:
    plot = build_document_scatter(*sources, "sums")
    numbers = np.arange(40)
    before, after = numbers % 4 != 0, numbers % 5 != 0
    expected = {
        (float(one), float(other)): int(((before == one) & (after == other)).sum())
        for one in (False, True)
        for other in (False, True)
    }
    assert {(row[0], row[1]): row[2] for row in plot.table.rows} == expected
    better, worse = expected[0.0, 1.0], expected[1.0, 0.0]
    assert f"is better on {better}, worse on {worse} and equal on {40 - better - worse}" in plot.summary
    assert plot.build is not None
    assert [trace["text"] for trace in plot.build(LIGHT)["data"][1:3]] == [[str(better)], [str(worse)]]


class FileSource:
    """A source with one task whose scores are given."""

    facts: ClassVar[dict[str, Any]] = {}
    tasks: ClassVar[list[str]] = ["t"]

    def __init__(self, name: str, values: Sequence[float | None], *, higher_is_better: bool = True) -> None:
        self.name = self.model = name
        self._column = ScoreColumn(
            pipeline="none",
            metric="rate",
            values=values,
            aggregation="mean",
            higher_is_better=higher_is_better,
        )

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        count = len(self._column.values)
        return ScoreTable(
            task=task,
            kind="assay",
            documents=list(range(count)),
            content_digests=list(range(count)),
            prompt_digests=list(range(count)),
            endings=["scored"] * count,
            columns={("none", "rate"): self._column},
        )

    def read_estimates(self) -> list[Estimate]:
        return []

    def field(self, task: str, name: str) -> list[Any]:
        return []

    def field_names(self, task: str) -> list[str]:
        return []

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        return {}

    def close(self) -> None: ...


def test_many_pairs_are_sampled_points() -> None:
    first = FileSource("a", [n / 100 for n in range(1000)], higher_is_better=False)
    second = FileSource("b", [n / 200 for n in range(1000)], higher_is_better=False)
    plot = build_document_scatter(first, second, "t", max_points=50)
    assert "better on 999, worse on 0 and equal on 1" in plot.summary  # lower is better
    assert len(plot.table.rows) == 50 and "random sample of 50 documents" in plot.note
    assert all(row[1] == row[0] / 2 for row in plot.table.rows)
    assert plot.build is not None
    figure = plot.build(LIGHT)
    assert sum(len(trace["x"]) for trace in figure["data"][1:]) == 50
    assert figure["layout"]["xaxis"]["range"][1] > 9.9


def test_runs_without_common_scores_say_why() -> None:
    first, second = FileSource("a", [1.0, None]), FileSource("b", [None, 1.0])
    assert "no scored document in common" in build_document_scatter(first, second, "t").missing
    assert "no metric" in build_document_scatter(first, second, "t", metric="other").missing
    assert "no task in common" in build_task_scatter(first, second).missing


def test_a_task_of_one_run_only_is_an_error(sources: Sources) -> None:
    with pytest.raises(UnknownName, match="not in both runs"):
        build_document_scatter(*sources, "nothing")
