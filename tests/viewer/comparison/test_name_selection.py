from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import write_task

import assay
from assay.core.errors import UnknownName
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.comparison.name_selection import check_metric_names, select_shared_tasks
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(3)]


@pytest.fixture
def sources(tmp_path: Path) -> list[ScoreTableSource]:
    """Return two runs that share one task."""
    tasks = {name: str(write_task(tmp_path / name, name, ROWS)) for name in ("sums", "more", "rest")}
    return [
        open_source(
            assay.run(
                model="oracle", tasks=[tasks["sums"], tasks[other]], output_path=str(tmp_path / "results")
            )
        )
        for other in ("more", "rest")
    ]


def test_all_shared_tasks_are_selected_without_names(sources: list[ScoreTableSource]) -> None:
    assert select_shared_tasks(sources, []) == ["sums"]
    assert select_shared_tasks(sources[:1], []) == ["sums", "more"]
    assert select_shared_tasks(sources[:1], ["more"]) == ["more"]


def test_a_task_of_one_run_only_is_unknown(sources: list[ScoreTableSource]) -> None:
    with pytest.raises(UnknownName, match="no task of both runs is called `more`") as caught:
        select_shared_tasks(sources, ["sums", "more"])
    assert (caught.value.where, caught.value.hint) == ("--tasks", "available: sums")


def test_an_unknown_metric_is_reported_with_the_shared_ones() -> None:
    check_metric_names(["acc"], ["acc", "f1"])
    with pytest.raises(UnknownName, match="no task of both runs has the metric `bleu`") as caught:
        check_metric_names(["acc", "bleu"], ["acc", "f1", "acc"])
    assert (caught.value.where, caught.value.hint) == ("--metric", "available: acc, f1")
