"""The table of several runs as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest

from assay.viewer.matrix import (
    FORMATS,
    Matrix,
    MatrixCell,
    MatrixColumn,
    MatrixRow,
    NumberStyle,
    build_text_tables,
    format_matrix,
)
from assay.viewer.text_tables import render_table_text

HOSTILE = '=cmd|"x" <script>alert(1)</script> [a](javascript:b) \\input{/etc/passwd} 50% a_b `c` $x$ {d}'


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


@pytest.mark.parametrize("name", ["text", "md", "latex"])
def test_a_standard_error_that_ignores_clusters_is_noted(hostile: Matrix, name: str) -> None:
    """The standard error is that of lm-eval; only the interval accounts for clusters."""
    row = hostile.rows[0]
    cells = tuple(None if cell is None else replace(cell, clusters=3) for cell in row.cells)
    clustered = replace(hostile, rows=(replace(row, task="stories", cells=cells),))
    assert "the documents of stories as independent" in format_matrix(clustered, name)
    assert "as independent" not in format_matrix(hostile, name)
    assert "as independent" not in format_matrix(clustered, name, NumberStyle(error="interval"))


@pytest.mark.parametrize("name", FORMATS)
def test_runs_can_be_rows(hostile: Matrix, name: str) -> None:
    text = format_matrix(hostile, name, NumberStyle(models_in_rows=True, digits=1, error="none"))
    assert "0.9" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("transposed", [False, True])
def test_tables_fit_the_terminal_and_show_every_value(width: int, transposed: bool) -> None:
    """Names of runs wrap, scores do not; runs that do not fit are in a further table."""
    runs = tuple(
        MatrixColumn(label=f"embedded-quickstart-{at}1756883", name="r", model="m") for at in range(7)
    )
    rows = tuple(
        MatrixRow(
            task=name,
            label=name,
            metric="exact_match",
            pipeline="none",
            higher_is_better=True,
            cells=tuple(
                MatrixCell(value=(at + 10 * line) / 100, stderr=0.0171, interval=None, scored=9)
                for at in range(7)
            ),
        )
        for line, name in enumerate(["quickstart_addition", "quickstart_copy"])
    )
    style = NumberStyle(models_in_rows=transposed)
    tables, notes = build_text_tables(Matrix(columns=runs, rows=rows), style, width)
    text = "\n".join(render_table_text(table, width=width) for table in tables)
    assert max(map(len, text.splitlines())) <= width
    for value in [0.00, 0.06, 0.10, 0.16]:
        assert f"{value:.4f} ± 0.0171" in text
    assert text.count("± 0.0171") == 14 and notes == []
