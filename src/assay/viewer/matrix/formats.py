"""A table of runs as text, Markdown, LaTeX or CSV; names are escaped for each format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.core.terminal_text import escape_control_characters
from assay.viewer.exports.rows import escape_formula
from assay.viewer.matrix.score_matrix import Matrix, MatrixCell, MatrixRow
from assay.viewer.number_format import DIRECTION_ARROWS
from assay.viewer.text_tables import Column, TextTable

__all__ = ["FORMATS", "NumberStyle", "build_text_tables", "format_error", "format_matrix", "format_value"]

_BEST_NOTE = "significantly better than every other run (95 %, adjusted for the number of runs)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStyle:
    """How numbers are formatted."""

    error: Literal["stderr", "interval", "none"] = "stderr"
    percent: bool = False
    """Values between 0 and 1 as percentages: 57.3 for 0.573."""

    digits: int | None = None
    """Decimals; None: four, or two for percentages."""

    models_in_rows: bool = False
    """Runs in rows and tasks in columns, as in papers."""

    @property
    def decimals(self) -> int:
        return (2 if self.percent else 4) if self.digits is None else self.digits


def format_matrix(matrix: Matrix, name: str, style: NumberStyle | None = None) -> str:
    """Return the table in one of `FORMATS`."""
    return FORMATS[name](matrix, style or NumberStyle())


def format_value(cell: MatrixCell, row: MatrixRow, style: NumberStyle) -> str:
    """Format a score, as a percentage if the style says so."""
    return _format_number(cell.value, row, style)


def format_error(cell: MatrixCell, row: MatrixRow, style: NumberStyle) -> str:
    """Format the error after a score: `± 0.0171`, `[0.41, 0.55]`, or nothing."""
    if style.error == "stderr" and cell.stderr is not None:
        return f"± {_format_number(cell.stderr, row, style)}"
    if style.error == "interval" and cell.interval is not None:
        low, high = (_format_number(end, row, style) for end in cell.interval)
        return f"[{low}, {high}]"
    return ""


def _format_number(value: float, row: MatrixRow, style: NumberStyle) -> str:
    scale = 100 if style.percent and row.share else 1
    return f"{scale * value:.{style.decimals}f}" if abs(value) < 1e7 else f"{value:.4e}"


def _build_cells(
    matrix: Matrix, style: NumberStyle, format_cell: Callable[[MatrixRow, MatrixCell | None], str]
) -> list[list[str]]:
    """Return the header and the cells as text; names are not escaped yet."""
    names = [column.label for column in matrix.columns]
    if not style.models_in_rows:
        body = [
            [
                f"{'  ' * row.depth}{row.label}",
                f"{row.measure} {DIRECTION_ARROWS[row.higher_is_better]}".rstrip(),
            ]
            + [format_cell(row, cell) for cell in row.cells]
            for row in matrix.rows
        ]
        return [["task", "metric", *names], *body]
    heads = [f"{row.label} ({row.measure}{DIRECTION_ARROWS[row.higher_is_better]})" for row in matrix.rows]
    return [
        ["model", *heads],
        *(
            [name, *(format_cell(row, row.cells[index]) for row in matrix.rows)]
            for index, name in enumerate(names)
        ),
    ]


def _build_text_cells(matrix: Matrix, style: NumberStyle) -> list[list[str]]:
    def format_cell(row: MatrixRow, cell: MatrixCell | None) -> str:
        if cell is None:
            return "–"
        parts = [format_value(cell, row, style), format_error(cell, row, style)]
        return " ".join(part for part in parts if part) + (" *" if cell.best else "")

    return [
        [escape_control_characters(text).replace("\n", " ") for text in line]
        for line in _build_cells(matrix, style, format_cell)
    ]


def _list_text_notes(matrix: Matrix, style: NumberStyle) -> list[str]:
    return [*([f"* {_BEST_NOTE}"] if _has_best(matrix) else []), *_list_notes(matrix, style)]


def _list_notes(matrix: Matrix, style: NumberStyle) -> list[str]:
    """Return the notes of the table, and the tasks whose standard error ignores their clusters, as in lm-eval."""
    clustered = dict.fromkeys(
        row.task
        for row in matrix.rows
        if any(
            cell is not None and cell.clusters is not None and cell.stderr is not None for cell in row.cells
        )
    )
    if style.error != "stderr" or not clustered:
        return [*matrix.notes]
    names = escape_control_characters(", ".join(clustered))
    return [
        *matrix.notes,
        f"± treats the documents of {names} as independent, but they are clustered; `--error interval` accounts for clusters",
    ]


def _format_text(matrix: Matrix, style: NumberStyle) -> str:
    table = _build_text_cells(matrix, style)
    left = 1 if style.models_in_rows else 2
    widths = [max(len(line[index]) for line in table) for index in range(len(table[0]))]
    lines = [
        "   ".join(
            text.ljust(width) if index < left else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join([*lines, *_list_text_notes(matrix, style)]) + "\n"


def build_text_tables(matrix: Matrix, style: NumberStyle, width: int) -> tuple[list[TextTable], list[str]]:
    """Return tables for a terminal of `width` columns, and the notes below them.

    Several tables, with some of the runs each, if one is too wide.
    """
    header, *body = _build_text_cells(matrix, style)
    left = 1 if style.models_in_rows else 2
    tables = []
    start = left
    while start < len(header):
        for end in range(len(header), start, -1):
            table = _build_text_table(header, body, [*range(left), *range(start, end)], left)
            if end == start + 1 or max(line.cell_len for line in table.build_lines(width)) <= width:
                break
        tables.append(table)
        start = end
    return tables, _list_text_notes(matrix, style)


def _build_text_table(header: list[str], body: list[list[str]], columns: list[int], left: int) -> TextTable:
    from rich.markup import escape

    table = TextTable(
        columns=[
            Column(title=header[index], wrap=True)
            if index < left
            else Column(title=header[index], justify="right", wrap_title=True)
            for index in columns
        ]
    )
    for line in body:
        table.add_row(*(escape(line[index]) for index in columns))
    return table


def _format_markdown(matrix: Matrix, style: NumberStyle) -> str:
    def format_cell(row: MatrixRow, cell: MatrixCell | None) -> str:
        if cell is None:
            return "–"
        value, error = format_value(cell, row, style), format_error(cell, row, style)
        value = f"**{value}**" if cell.best else value
        return f"{value} {error}".rstrip()

    table = _build_cells(matrix, style, format_cell)
    left = 1 if style.models_in_rows else 2
    names = {0, *range(left)}
    lines = [
        [_escape_markdown(text) if index in names or number == 0 else text for index, text in enumerate(line)]
        for number, line in enumerate(table)
    ]
    for line, row in zip(lines[1:], () if style.models_in_rows else matrix.rows, strict=False):
        line[0] = (
            f"{'&nbsp;&nbsp;' * row.depth}{'**' if row.group else ''}{line[0]}{'**' if row.group else ''}"
        )
    sides = ["---"] * left + ["---:"] * (len(table[0]) - left)
    shown_lines = [f"| {' | '.join(line)} |" for line in (lines[0], sides, *lines[1:])]
    notes = [
        f"**bold**: {_BEST_NOTE}" if _has_best(matrix) else "",
        *map(_escape_markdown, _list_notes(matrix, style)),
    ]
    return "\n".join([*shown_lines, *(f"\n{note}" for note in notes if note)]) + "\n"


_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")


def _escape_markdown(text: str) -> str:
    """Escape a name for Markdown."""
    text = (
        " ".join(escape_control_characters(text).split())
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )
    return _MARKDOWN_SPECIAL.sub(r"\\\1", text)


def _format_latex(matrix: Matrix, style: NumberStyle) -> str:
    def format_cell(row: MatrixRow, cell: MatrixCell | None) -> str:
        if cell is None:
            return "--"
        value, error = format_value(cell, row, style), format_error(cell, row, style)
        value = f"\\textbf{{{value}}}" if cell.best else value
        return f"{value} {{\\scriptsize ${error.replace('± ', chr(92) + 'pm ')}$}}" if error else value

    table = _build_cells(matrix, style, format_cell)
    left = 1 if style.models_in_rows else 2
    lines = []
    for number, line in enumerate(table):
        cells = [
            _escape_latex(text) if number == 0 or index < left else text for index, text in enumerate(line)
        ]
        if number and not style.models_in_rows:
            row = matrix.rows[number - 1]
            cells[0] = f"\\hspace{{{row.depth}em}}{cells[0]}" if row.depth else cells[0]
            cells[0] = f"\\textbf{{{cells[0]}}}" if row.group else cells[0]
        lines.append(f"{' & '.join(cells)} \\\\")
    note = f"% bold: {_BEST_NOTE}\n" if _has_best(matrix) else ""
    note += "".join(f"% {' '.join(one.split())}\n" for one in _list_notes(matrix, style))
    return "\n".join(
        [
            f"{note}% needs \\usepackage{{booktabs}}",
            f"\\begin{{tabular}}{{{'l' * left}{'r' * (len(table[0]) - left)}}}",
            "\\toprule",
            lines[0],
            "\\midrule",
            *lines[1:],
            "\\bottomrule",
            "\\end{tabular}\n",
        ]
    )


_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


def _escape_latex(text: str) -> str:
    """Escape a name for LaTeX.

    >>> _escape_latex("50% of_all")
    '50\\\\% of\\\\_all'
    """
    return "".join(
        _LATEX_ESCAPES.get(letter, letter) for letter in " ".join(escape_control_characters(text).split())
    )


def _format_csv(matrix: Matrix, style: NumberStyle) -> str:
    """Return unrounded numbers, each in its own column, for other programs; the style is ignored."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    heads = ("value", "stderr", "low", "high", "scored", "best")
    writer.writerow(
        ["task", "metric", "filter", "higher_is_better"]
        + [escape_formula(f"{column.label} {head}") for column in matrix.columns for head in heads]
    )
    for row in matrix.rows:
        cells: list[object] = []
        for cell in row.cells:
            low, high = ("", "") if cell is None or cell.interval is None else cell.interval
            cells += (
                [""] * len(heads)
                if cell is None
                else [
                    cell.value,
                    "" if cell.stderr is None else cell.stderr,
                    low,
                    high,
                    cell.scored,
                    int(cell.best),
                ]
            )
        direction = "" if row.higher_is_better is None else int(row.higher_is_better)
        writer.writerow([*map(escape_formula, (row.task, row.metric, row.pipeline)), direction, *cells])
    return stream.getvalue()


def _has_best(matrix: Matrix) -> bool:
    return any(cell is not None and cell.best for row in matrix.rows for cell in row.cells)


FORMATS: dict[str, Callable[[Matrix, NumberStyle], str]] = {
    "text": _format_text,
    "md": _format_markdown,
    "latex": _format_latex,
    "csv": _format_csv,
}
"""Name -> function that formats a table."""
