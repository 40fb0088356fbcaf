"""A table of runs as text, Markdown, LaTeX or CSV; whatever names are made of, they stay names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.core.printable import printable
from assay.viewer.exports.rows import harmless
from assay.viewer.matrix.collecting import Cell, Matrix, Row

__all__ = ["FORMATS", "Style", "error_text", "value_text", "written"]

_BEST = "best beyond chance (95 %, allowing for the number of runs)"
_ARROWS = {True: "↑", False: "↓", None: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How numbers are written."""

    error: Literal["stderr", "interval", "none"] = "stderr"
    percent: bool = False
    """Shares in points: 57.3 for 0.573."""

    digits: int | None = None
    """Decimals; None: four, of points two."""

    models_in_rows: bool = False
    """Runs in rows and tasks in columns, as papers have it."""

    @property
    def decimals(self) -> int:
        return (2 if self.percent else 4) if self.digits is None else self.digits


def written(matrix: Matrix, name: str, style: Style | None = None) -> str:
    """The table in a format of `FORMATS`."""
    return FORMATS[name](matrix, style or Style())


def value_text(cell: Cell, row: Row, style: Style) -> str:
    """A number; a share in points where that is asked for."""
    return _number(cell.value, row, style)


def error_text(cell: Cell, row: Row, style: Style) -> str:
    """What stands behind a number: `± 0.0171`, `[0.41, 0.55]`, or nothing."""
    if style.error == "stderr" and cell.stderr is not None:
        return f"± {_number(cell.stderr, row, style)}"
    if style.error == "interval" and cell.interval is not None:
        low, high = (_number(end, row, style) for end in cell.interval)
        return f"[{low}, {high}]"
    return ""


def _number(value: float, row: Row, style: Style) -> str:
    scale = 100 if style.percent and row.share else 1
    return f"{scale * value:.{style.decimals}f}" if abs(value) < 1e7 else f"{value:.4e}"


def _table(matrix: Matrix, style: Style, shown: Callable[[Row, Cell | None], str]) -> list[list[str]]:
    """Heads and cells as texts; names are not escaped yet."""
    names = [column.label for column in matrix.columns]
    if not style.models_in_rows:
        body = [
            [f"{'  ' * row.depth}{row.label}", f"{row.measure} {_ARROWS[row.higher_is_better]}".rstrip()]
            + [shown(row, cell) for cell in row.cells]
            for row in matrix.rows
        ]
        return [["task", "metric", *names], *body]
    heads = [f"{row.label} ({row.measure}{_ARROWS[row.higher_is_better]})" for row in matrix.rows]
    return [
        ["model", *heads],
        *([name, *(shown(row, row.cells[at]) for row in matrix.rows)] for at, name in enumerate(names)),
    ]


def _plain(matrix: Matrix, style: Style) -> str:
    def shown(row: Row, cell: Cell | None) -> str:
        if cell is None:
            return "–"
        parts = [value_text(cell, row, style), error_text(cell, row, style)]
        return " ".join(part for part in parts if part) + (" *" if cell.best else "")

    table = [[printable(text).replace("\n", " ") for text in line] for line in _table(matrix, style, shown)]
    left = 1 if style.models_in_rows else 2
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    lines = [
        "   ".join(
            text.ljust(width) if at < left else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join([*lines, *([f"* {_BEST}"] if _any_best(matrix) else []), *matrix.notes]) + "\n"


def _markdown(matrix: Matrix, style: Style) -> str:
    def shown(row: Row, cell: Cell | None) -> str:
        if cell is None:
            return "–"
        value, error = value_text(cell, row, style), error_text(cell, row, style)
        value = f"**{value}**" if cell.best else value
        return f"{value} {error}".rstrip()

    table = _table(matrix, style, shown)
    left = 1 if style.models_in_rows else 2
    names = {0, *range(left)}
    lines = [
        [_markdown_text(text) if at in names or number == 0 else text for at, text in enumerate(line)]
        for number, line in enumerate(table)
    ]
    for line, row in zip(lines[1:], () if style.models_in_rows else matrix.rows, strict=False):
        line[0] = (
            f"{'&nbsp;&nbsp;' * row.depth}{'**' if row.group else ''}{line[0]}{'**' if row.group else ''}"
        )
    sides = ["---"] * left + ["---:"] * (len(table[0]) - left)
    shown_lines = [f"| {' | '.join(line)} |" for line in (lines[0], sides, *lines[1:])]
    notes = [f"**bold**: {_BEST}" if _any_best(matrix) else "", *map(_markdown_text, matrix.notes)]
    return "\n".join([*shown_lines, *(f"\n{note}" for note in notes if note)]) + "\n"


_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$])")


def _markdown_text(text: str) -> str:
    """A name in Markdown: no tags, links or emphasis of its own."""
    text = " ".join(printable(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", text)


def _latex(matrix: Matrix, style: Style) -> str:
    def shown(row: Row, cell: Cell | None) -> str:
        if cell is None:
            return "--"
        value, error = value_text(cell, row, style), error_text(cell, row, style)
        value = f"\\textbf{{{value}}}" if cell.best else value
        return f"{value} {{\\scriptsize ${error.replace('± ', chr(92) + 'pm ')}$}}" if error else value

    table = _table(matrix, style, shown)
    left = 1 if style.models_in_rows else 2
    lines = []
    for number, line in enumerate(table):
        cells = [_latex_text(text) if number == 0 or at < left else text for at, text in enumerate(line)]
        if number and not style.models_in_rows:
            row = matrix.rows[number - 1]
            cells[0] = f"\\hspace{{{row.depth}em}}{cells[0]}" if row.depth else cells[0]
            cells[0] = f"\\textbf{{{cells[0]}}}" if row.group else cells[0]
        lines.append(f"{' & '.join(cells)} \\\\")
    note = f"% bold: {_BEST}\n" if _any_best(matrix) else ""
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


_LATEX = {
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


def _latex_text(text: str) -> str:
    """A name in LaTeX: no commands of its own.

    >>> _latex_text("50% of_all")
    '50\\\\% of\\\\_all'
    """
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(printable(text).split()))


def _csv(matrix: Matrix, style: Style) -> str:
    """Numbers whole and unrounded, each in a column of its own, whatever the style: for other programs."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    heads = ("value", "stderr", "low", "high", "scored", "best")
    writer.writerow(
        ["task", "metric", "filter", "higher_is_better"]
        + [harmless(f"{column.label} {head}") for column in matrix.columns for head in heads]
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
        writer.writerow([*map(harmless, (row.task, row.metric, row.pipeline)), direction, *cells])
    return stream.getvalue()


def _any_best(matrix: Matrix) -> bool:
    return any(cell is not None and cell.best for row in matrix.rows for cell in row.cells)


FORMATS: dict[str, Callable[[Matrix, Style], str]] = {
    "text": _plain,
    "md": _markdown,
    "latex": _latex,
    "csv": _csv,
}
"""Name -> how a table is written."""
