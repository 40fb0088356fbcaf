"""Comparing runs of weighted subsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from assay.core.records.subsets import STRATIFIED, DocumentSubset
from assay.store.documents.score_tables import ScoreColumn, ScoreTable
from assay.viewer.comparison.records import CompareOptions, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources

SUBSET = DocumentSubset(
    method=STRATIFIED, sizes=(80, 20), members=((0, 3, 5, 9), (80, 90, 95, 99)), content="digest"
)


class Source:
    """A source with one table."""

    facts: ClassVar[dict[str, Any]] = {}
    tasks = ("sums",)

    def __init__(self, table: ScoreTable, name: str) -> None:
        self.table, self.name, self.model = table, name, name

    def read_score_table(self, task: str, kind: str | None = None) -> ScoreTable:
        return self.table

    def read_estimates(self) -> list[Any]:
        return []

    def field(self, task: str, name: str) -> list[Any]:
        return [f"{number % 2}" if name == "kind" else None for number in self.table.documents]

    def field_names(self, task: str) -> list[str]:
        return ["kind"]

    def read_excerpts(self, task: str, documents: Any) -> dict[int, Any]:
        return {}

    def close(self) -> None: ...


def make_table(scores: dict[int, float], subset: DocumentSubset | None) -> ScoreTable:
    numbers = list(scores)
    return ScoreTable(
        task="sums",
        kind="assay",
        documents=numbers,
        content_digests=numbers,
        prompt_digests=numbers,
        endings=["scored"] * len(numbers),
        columns={
            ("none", "acc"): ScoreColumn(
                pipeline="none", metric="acc", values=list(scores.values()), reported=0.123
            )
        },
        subset=None if subset is None else subset.to_json(),
    )


def compare(first: ScoreTable, second: ScoreTable, **options: Any) -> tuple[ComparisonRow, tuple[str, ...]]:
    found = compare_sources(Source(first, "a"), Source(second, "b"), CompareOptions(**options))
    return found.rows[0], found.notes


WRONG = dict.fromkeys(SUBSET.indices, 0.0)
RIGHT_IN_THE_LARGE_STRATUM = {**WRONG, 0: 1.0, 3: 1.0, 5: 1.0, 9: 1.0}


def test_runs_of_the_same_subset_are_compared_with_its_weights() -> None:
    row, _ = compare(make_table(WRONG, SUBSET), make_table(RIGHT_IN_THE_LARGE_STRATUM, SUBSET))
    assert row.difference == pytest.approx(0.8)
    assert (row.wins, row.ties, row.losses, row.documents) == (4, 4, 0, 8)
    assert row.interval_method == "weighted"
    assert "8 documents stand for all 100" in row.notes[0]
    assert not any("not means" in note for note in row.notes)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_run_of_all_documents_is_compared_on_the_subset(swapped: bool) -> None:
    whole = make_table(dict.fromkeys(range(100), 0.0), None)
    part = make_table(RIGHT_IN_THE_LARGE_STRATUM, SUBSET)
    row, _ = compare(part, whole) if swapped else compare(whole, part)
    assert abs(row.difference) == pytest.approx(0.8)


def test_different_subsets_are_compared_without_weights_and_the_row_says_so() -> None:
    other = replace(SUBSET, members=((0, 3, 5, 10), (80, 90, 95, 99)))
    scores = dict.fromkeys(other.indices, 1.0)
    row, _ = compare(make_table(WRONG, SUBSET), make_table(scores, other))
    assert row.documents == 7 and row.interval_method != "weighted"
    assert any("different subsets" in note for note in row.notes)


def test_documents_that_a_run_lacks_leave_no_known_weights() -> None:
    row, _ = compare(make_table({0: 1.0, 3: 1.0, 80: 0.0}, None), make_table(WRONG, SUBSET))
    assert row.documents == 3
    assert any("lacks 5 documents of the subset" in note for note in row.notes)


def test_categories_have_no_weights_and_a_note() -> None:
    _, notes = compare(make_table(WRONG, SUBSET), make_table(WRONG, SUBSET), category="kind")
    assert any("without the weights" in note for note in notes)


def test_clusters_are_not_used_and_the_row_says_so() -> None:
    row, _ = compare(make_table(WRONG, SUBSET), make_table(WRONG, SUBSET), cluster_by="kind")
    assert row.clusters is None
    assert any(note.startswith("clusters are not used") for note in row.notes)
    plain, _ = compare(make_table(WRONG, SUBSET), make_table(WRONG, SUBSET))
    assert not any("clusters" in note for note in plain.notes)
