"""Rich tables rendered as plain text, for files, notes and output that is not a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_table_text"]


def render_table_text(table: Table, *, width: int = 10_000) -> str:
    """Return a table as lines of plain text without trailing spaces."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
