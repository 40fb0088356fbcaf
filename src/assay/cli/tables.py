"""Prints tables: in colour and as wide as the terminal, or as uncut plain text if standard output is not a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from assay.viewer.matrix import Matrix, NumberStyle
    from assay.viewer.text_tables import TextTable

__all__ = ["echo_wrapped", "get_terminal_width", "print_matrix", "print_table", "wrap_line"]

_UNLIMITED = 10_000


def get_terminal_width(*, err: bool = False) -> int:
    """Return the width of the terminal; unlimited if standard output (or standard error) is not a terminal."""
    from rich.console import Console

    console = Console(stderr=err)
    return console.width if console.is_terminal else _UNLIMITED


def wrap_line(text: str, width: int) -> str:
    """Wrap a line between words; further lines are indented.

    >>> wrap_line("note: a long line", 12)
    'note: a long\\n  line'
    """
    from textwrap import wrap

    if len(text) <= width:
        return text
    return "\n".join(
        wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    )


def echo_wrapped(text: str, *, err: bool = False) -> None:
    """Print a line, wrapped between words if it goes to a terminal."""
    click.echo(wrap_line(text, get_terminal_width(err=err)), err=err)


def print_table(table: TextTable) -> None:
    """Print a table to standard output."""
    from rich.console import Console

    from assay.viewer.text_tables import render_table_text

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
    else:
        click.echo(render_table_text(table))


def print_matrix(matrix: Matrix, style: NumberStyle | None = None) -> None:
    """Print a table of runs to standard output: as several tables if the terminal is too narrow for one."""
    from assay.viewer.matrix import NumberStyle, build_text_tables, format_matrix

    width = get_terminal_width()
    if width == _UNLIMITED:
        click.echo(format_matrix(matrix, "text", style), nl=False)
        return
    tables, notes = build_text_tables(matrix, style or NumberStyle(), width)
    for table in tables:
        print_table(table)
    for note in notes:
        echo_wrapped(note)
