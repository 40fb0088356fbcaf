"""Clusters of documents in a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.making import make_model, write_task
from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.core.errors import UnknownName


def test_clusters_of_the_given_field_widen_the_interval(runs: Runs) -> None:
    first, second = runs(right_for()), runs(right_for(*range(8), *range(16, 24)))
    alone = assay.compare(first, second).rows[0]
    together = assay.compare(first, second, cluster_by="text").rows[0]
    assert together.clusters == 10
    assert together.p_value > alone.p_value
    assert together.high - together.low > alone.high - alone.low
    with pytest.raises(UnknownName, match="no field `page`"):
        assay.compare(first, second, cluster_by="page")


def test_a_shared_field_is_suggested_for_clustering(runs: Runs) -> None:
    rows = [{**row, "passage": f"text {n // 3}"} for n, row in enumerate(ROWS)]
    found = assay.compare(runs(right_for(1), rows=rows), runs(right_for(1), rows=rows))
    assert "40 documents share 14 values of `passage`" in " ".join(found.notes)


def test_a_field_missing_in_some_tasks_is_a_note_and_in_all_tasks_an_error(tmp_path: Path) -> None:
    plain = [{"question": row["question"], "answer": row["answer"]} for row in ROWS]
    tasks = [str(write_task(tmp_path, "sums", ROWS)), str(write_task(tmp_path, "plain", plain))]
    first, second = (
        assay.run(
            model=make_model(right_for(*known)), tasks=tasks, no_cache=True, output_path=str(tmp_path / place)
        )
        for known, place in ((range(9), "a"), (range(30), "b"))
    )
    found = assay.compare(first, second, category="kind", cluster_by="text")
    assert {row.category for row in found.categories} == {"odd", "even"}
    assert [row.clusters for row in found.rows] == [10, None]
    assert any("`plain` have no field `kind`" in note for note in found.notes)
    with pytest.raises(UnknownName, match="no field `colour`"):
        assay.compare(first, second, category="colour")


def test_a_single_cluster_gives_no_p_value(runs: Runs) -> None:
    rows = [{**row, "text": "one"} for row in ROWS]
    found = assay.compare(runs(right_for(), rows), runs(right_for(*range(40)), rows), cluster_by="text")
    (row,) = found.rows
    assert (row.low, row.high, row.p_value, row.differs) == (-1.0, 1.0, 1.0, False)
    assert any("one cluster" in note for note in row.notes)
    json.dumps(found.as_json(), allow_nan=False)
