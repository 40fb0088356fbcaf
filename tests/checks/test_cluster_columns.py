from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.checks.test_groups import collect_findings
from tests.making import write_task

from assay.checks.cluster_columns import find_cluster_columns


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        pytest.param("passage", [n // 5 for n in range(50)], True, id="named, in runs"),
        pytest.param("video_id", [n % 10 for n in range(50)], True, id="named, in any order"),
        pytest.param("source", [n // 4 for n in range(60)], True, id="in runs"),
        pytest.param("source", [n % 15 for n in range(60)], False, id="not in runs"),
        pytest.param("category", [n // 20 for n in range(60)], False, id="a category"),
        pytest.param("passage", list(range(60)), False, id="all different"),
        pytest.param("answer", [n % 2 for n in range(60)], False, id="right or wrong"),
        pytest.param("passage", [1, 1, 2, 2], False, id="too few documents"),
    ],
)
def test_columns_that_look_like_clusters(name: str, values: list[Any], found: bool) -> None:
    assert bool(find_cluster_columns({name: values})) is found


ROWS = [
    {"question": f"What is {n} + 1?", "answer": str(n + 1), "passage": f"text {n // 5}"} for n in range(40)
]


def test_a_task_without_a_cluster_key_is_warned(tmp_path: Path) -> None:
    write_task(tmp_path, rows=ROWS)
    (finding,) = [one for one in collect_findings(tmp_path) if one.kind == "cluster"]
    assert (finding.severity, finding.what.partition(":")[0]) == (
        "warning",
        "40 documents share 8 values of `passage`",
    )
    assert "cluster_key: passage" in finding.hint


@pytest.mark.parametrize(("key", "count"), [("passage", 0), ("pasage", 1)])
def test_the_cluster_key_is_a_column(tmp_path: Path, key: str, count: int) -> None:
    write_task(tmp_path, rows=ROWS, cluster_key=key)
    assert len([one for one in collect_findings(tmp_path) if one.kind == "cluster"]) == count
