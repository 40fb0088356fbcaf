"""The table of several runs, with the significantly best scores marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import UnknownName
from assay.store.documents.run_score_tables import RunScoreTables
from assay.viewer.matrix import (
    build_matrix,
)

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]


def right_for(share: int) -> Any:
    """Return answers that are right for the first `share` documents."""

    def answer(request: Any) -> Any:
        if hasattr(request, "continuation"):
            from assay.core.records.responses import LogProbability

            return LogProbability(-1.0 if request.index == 1 else -2.0, True)
        return str(request.document + (1 if request.document < share else 2))

    return answer


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunScoreTables]]:
    folder = tmp_path_factory.mktemp("matrix")
    tasks = [str(write_task(folder, "sums", ROWS)), str(write_choices(folder, rows=4))]
    runs = [
        assay.run(
            model=make_model(right_for(share), name=name),
            tasks=tasks,
            no_cache=True,
            output_path=str(folder / "out"),
        )
        for name, share in (("bad", 10), ("good", 50), ("likewise", 51))
    ]
    opened = [RunScoreTables(run) for run in runs]
    yield opened
    for one in opened:
        one.close()


def test_every_score_is_in_its_row_and_column(sources: list[RunScoreTables]) -> None:
    matrix = build_matrix(sources)
    assert [column.label for column in matrix.columns] == ["bad", "good", "likewise"]
    assert [(row.task, [cell.value for cell in row.cells if cell]) for row in matrix.rows] == [
        ("sums", pytest.approx([10 / 60, 50 / 60, 51 / 60])),
        ("choices", [0.5, 0.5, 0.5]),
    ]


def test_the_best_is_marked_only_if_it_is_significantly_better_than_all(
    sources: list[RunScoreTables],
) -> None:
    def best(chosen: list[RunScoreTables]) -> list[list[bool]]:
        return [[bool(cell and cell.best) for cell in row.cells] for row in build_matrix(chosen).rows]

    assert best(sources[:2]) == [[False, True], [False, False]]
    assert best(sources) == [[False, False, False], [False, False, False]], (
        "two are alike, so nobody is the best"
    )
    assert best(sources[:1]) == [[False], [False]]


def test_the_same_run_twice_has_two_labels(sources: list[RunScoreTables]) -> None:
    labels = [column.label for column in build_matrix([sources[0], sources[0]]).columns]
    assert len(set(labels)) == 2


@pytest.mark.parametrize("wanted", [{"tasks": ["nothing"]}, {"metrics": ["nothing"]}])
def test_unknown_tasks_and_metrics_are_errors_with_a_hint(sources: list[RunScoreTables], wanted: Any) -> None:
    with pytest.raises(UnknownName) as caught:
        build_matrix(sources, **wanted)
    assert "they have" in caught.value.hint


def test_a_task_of_one_run_has_empty_cells_for_the_others(
    sources: list[RunScoreTables], tmp_path: Path
) -> None:
    task = str(write_task(tmp_path, "more", ROWS[:4]))
    run = assay.run(
        model=make_model(name="other"), tasks=[task], no_cache=True, output_path=str(tmp_path / "out")
    )
    matrix = build_matrix([sources[0], RunScoreTables(run)])
    run.close()
    assert [(row.task, [cell is None for cell in row.cells]) for row in matrix.rows] == [
        ("sums", [False, True]),
        ("choices", [False, True]),
        ("more", [True, False]),
    ]
