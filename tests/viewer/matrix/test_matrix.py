"""Runs side by side: every number where it belongs, the best one marked only beyond chance, names that stay names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import UnknownName
from assay.store.documents.run_score_tables import RunScoreTables
from assay.viewer.matrix import (
    FORMATS,
    Matrix,
    MatrixCell,
    MatrixColumn,
    MatrixRow,
    NumberStyle,
    build_matrix,
    format_matrix,
)

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]
HOSTILE = '=cmd|"x" <script>alert(1)</script> [a](javascript:b) \\input{/etc/passwd} 50% a_b `c` $x$ {d}'


def knows(share: int) -> Any:
    """A model that is right about the first `share` documents."""

    def answer(request: Any) -> Any:
        if hasattr(request, "continuation"):
            from assay.core.responses import LogProbability

            return LogProbability(-1.0 if request.index == 1 else -2.0, True)
        return str(request.document + (1 if request.document < share else 2))

    return answer


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunScoreTables]]:
    folder = tmp_path_factory.mktemp("matrix")
    tasks = [str(write_task(folder, "sums", ROWS)), str(write_choices(folder, rows=4))]
    runs = [
        assay.run(
            model=make_model(knows(share), name=name),
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


@pytest.fixture
def hostile() -> Matrix:
    cells = (
        MatrixCell(value=0.5, stderr=0.1, interval=(0.3, 0.7), scored=10),
        MatrixCell(value=0.9, stderr=0.05, interval=(0.8, 1.0), scored=10, best=True),
        None,
    )
    row = MatrixRow(
        task=HOSTILE, label=HOSTILE, metric=HOSTILE, pipeline="none", cells=cells, higher_is_better=True
    )
    columns = tuple(MatrixColumn(label=f"{HOSTILE} {at}", name="r", model="m") for at in range(3))
    return Matrix(columns=columns, rows=(replace(row, group=True), replace(row, depth=1)))


def test_csv_escapes_formulas_and_has_unrounded_numbers(hostile: Matrix) -> None:
    rows = list(csv.reader(io.StringIO(format_matrix(hostile, "csv"))))
    assert not any(cell.startswith(("=", "@", "+", "-")) for line in rows for cell in line)
    assert rows[1][4:16] == ["0.5", "0.1", "0.3", "0.7", "10", "0", "0.9", "0.05", "0.8", "1.0", "10", "1"]
    assert rows[1][16:] == [""] * 6


def test_latex_escapes_names(hostile: Matrix) -> None:
    text = format_matrix(hostile, "latex", NumberStyle(percent=True))
    commands = set(re.findall(r"\\[a-zA-Z]+", text))
    assert commands <= {
        "\\begin", "\\end", "\\toprule", "\\midrule", "\\bottomrule", "\\usepackage", "\\textbf", "\\hspace",
        "\\scriptsize", "\\pm", "\\uparrow", "\\textbackslash", "\\textless", "\\textgreater", "\\textbar",
        "\\textquotedbl",
    }  # fmt: skip
    assert "\\textbf{90.00} {\\scriptsize $\\pm 5.00$}" in text
    lines = text.splitlines()
    body = lines[lines.index("\\midrule") + 1 : lines.index("\\bottomrule")]
    assert len(body) == 2
    assert all(len(re.findall(r"(?<!\\)&", line)) == 4 and line.endswith(" \\\\") for line in body)


def test_markdown_escapes_names(hostile: Matrix) -> None:
    text = format_matrix(hostile, "md")
    assert "<" not in text
    assert re.search(r"(?<!\\)\]\(", text) is None
    table = text.splitlines()[:4]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {6}
    assert "**0.9000** ± 0.0500" in table[2]


def test_text_escapes_control_characters_and_marks_the_best_with_a_star(hostile: Matrix) -> None:
    nasty = replace(hostile, rows=(replace(hostile.rows[0], label="a\x1b[2Jb\nc"),))
    text = format_matrix(nasty, "text", NumberStyle(error="interval"))
    assert "\x1b" not in text
    assert "0.9000 [0.8000, 1.0000] *" in text
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize("name", FORMATS)
def test_runs_can_be_rows(hostile: Matrix, name: str) -> None:
    text = format_matrix(hostile, name, NumberStyle(models_in_rows=True, digits=1, error="none"))
    assert "0.9" in text
