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
from assay.store.run_sheets import RunSheets
from assay.viewer.matrix import FORMATS, Cell, Column, Matrix, Row, Style, make_matrix, written

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
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunSheets]]:
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
    opened = [RunSheets(run) for run in runs]
    yield opened
    for one in opened:
        one.close()


def test_every_number_is_in_its_row_and_column(sources: list[RunSheets]) -> None:
    matrix = make_matrix(sources)
    assert [column.label for column in matrix.columns] == ["bad", "good", "likewise"]
    assert [(row.task, [cell.value for cell in row.cells if cell]) for row in matrix.rows] == [
        ("sums", pytest.approx([10 / 60, 50 / 60, 51 / 60])),
        ("choices", [0.5, 0.5, 0.5]),
    ]


def test_the_best_stands_out_only_where_it_beats_everybody(sources: list[RunSheets]) -> None:
    def best(chosen: list[RunSheets]) -> list[list[bool]]:
        return [[bool(cell and cell.best) for cell in row.cells] for row in make_matrix(chosen).rows]

    assert best(sources[:2]) == [[False, True], [False, False]]
    assert best(sources) == [[False, False, False], [False, False, False]], (
        "two are alike, so nobody is the best"
    )
    assert best(sources[:1]) == [[False], [False]]


def test_one_run_given_twice_has_two_names(sources: list[RunSheets]) -> None:
    labels = [column.label for column in make_matrix([sources[0], sources[0]]).columns]
    assert len(set(labels)) == 2


@pytest.mark.parametrize("wanted", [{"tasks": ["nothing"]}, {"metrics": ["nothing"]}])
def test_what_no_run_has_is_an_error_that_says_what_they_have(sources: list[RunSheets], wanted: Any) -> None:
    with pytest.raises(UnknownName) as caught:
        make_matrix(sources, **wanted)
    assert "they have" in caught.value.hint


def test_a_task_only_one_run_has_is_there_with_a_gap(sources: list[RunSheets], tmp_path: Path) -> None:
    task = str(write_task(tmp_path, "more", ROWS[:4]))
    run = assay.run(
        model=make_model(name="other"), tasks=[task], no_cache=True, output_path=str(tmp_path / "out")
    )
    matrix = make_matrix([sources[0], RunSheets(run)])
    run.close()
    assert [(row.task, [cell is None for cell in row.cells]) for row in matrix.rows] == [
        ("sums", [False, True]),
        ("choices", [False, True]),
        ("more", [True, False]),
    ]


@pytest.fixture
def hostile() -> Matrix:
    cells = (
        Cell(value=0.5, stderr=0.1, interval=(0.3, 0.7), scored=10),
        Cell(value=0.9, stderr=0.05, interval=(0.8, 1.0), scored=10, best=True),
        None,
    )
    row = Row(
        task=HOSTILE, label=HOSTILE, metric=HOSTILE, pipeline="none", cells=cells, higher_is_better=True
    )
    columns = tuple(Column(label=f"{HOSTILE} {at}", name="r", model="m") for at in range(3))
    return Matrix(columns=columns, rows=(replace(row, group=True), replace(row, depth=1)))


def test_a_csv_has_no_formulas_and_whole_numbers(hostile: Matrix) -> None:
    rows = list(csv.reader(io.StringIO(written(hostile, "csv"))))
    assert not any(cell.startswith(("=", "@", "+", "-")) for line in rows for cell in line)
    assert rows[1][4:16] == ["0.5", "0.1", "0.3", "0.7", "10", "0", "0.9", "0.05", "0.8", "1.0", "10", "1"]
    assert rows[1][16:] == [""] * 6


def test_latex_has_no_commands_but_its_own(hostile: Matrix) -> None:
    text = written(hostile, "latex", Style(percent=True))
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


def test_markdown_has_no_tags_links_or_columns_of_its_own(hostile: Matrix) -> None:
    text = written(hostile, "md")
    assert "<" not in text
    assert re.search(r"(?<!\\)\]\(", text) is None
    table = text.splitlines()[:4]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {6}
    assert "**0.9000** ± 0.0500" in table[2]


def test_a_terminal_gets_no_control_characters_and_a_star(hostile: Matrix) -> None:
    nasty = replace(hostile, rows=(replace(hostile.rows[0], label="a\x1b[2Jb\nc"),))
    text = written(nasty, "text", Style(error="interval"))
    assert "\x1b" not in text
    assert "0.9000 [0.8000, 1.0000] *" in text
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize("name", FORMATS)
def test_runs_can_stand_in_rows(hostile: Matrix, name: str) -> None:
    text = written(hostile, name, Style(models_in_rows=True, digits=1, error="none"))
    assert "0.9" in text
