"""Tables of all commands: one layout for every width, in colour for a terminal and as plain text elsewhere.

A table that is too wide for the terminal is made narrower in this order, and every value stays visible:

1. two spaces between the columns instead of three;
2. columns with a `fold` number move to a second line below their row, those with the highest number first;
3. names and long titles wrap between words: after spaces, underscores, dashes, slashes and commas.

A column that only draws what other columns say (`is_drawing`) is left out instead of folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

__all__ = ["Column", "TextTable", "render_table_text"]

_BREAK = re.compile(r"[^ _\-/,]*[ _\-/,]*")
"""A word with the characters after it where a line may end."""

_FOLD_INDENT = 5
_MIN_WRAP_WIDTH = 8
_WIDE_GAP, _NARROW_GAP = 3, 2
_UNLIMITED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str = ""
    justify: Literal["left", "right"] = "left"
    fold: int = 0
    """0: always in the first line. Columns with the highest number move to the second line first."""

    folded: str = "{}"
    """How a value is written in the second line: `{} scored`."""

    omit: frozenset[str] = frozenset()
    """Values that are not written in the second line, beside the empty one."""

    wrap: bool = False
    """Whether values may wrap between words."""

    wrap_title: bool = False
    """Whether the title may wrap between words, but not the values."""

    is_drawing: bool = False
    """Whether the column repeats numbers of other columns as a drawing; it has no second line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    cells: tuple[Text, ...]
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The columns of the first line with their widths, the folded columns, and the gap between columns."""

    shown: list[int]
    folded: list[int]
    widths: dict[int, int]
    gap: int

    @property
    def width(self) -> int:
        return 1 + sum(self.widths[index] for index in self.shown) + self.gap * (len(self.shown) - 1)


@dataclass(kw_only=True)
class TextTable:
    """Rows under columns; see the module for the layout. Rich prints it, and `render_table_text` returns plain text."""

    columns: Sequence[Column]
    header: bool = True
    """Whether to print the titles, and an empty line above and below the table."""

    _rows: list[_Row] = field(default_factory=list, init=False)

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a row; cells contain rich markup. Missing cells at the end are empty."""
        from rich.text import Text

        texts = [Text.from_markup(cell) for cell in cells]
        texts += [Text("")] * (len(self.columns) - len(texts))
        self._rows.append(_Row(cells=tuple(texts), style=style))
        self.__dict__.pop("_natural_widths", None)

    def build_lines(self, width: int = _UNLIMITED) -> list[Text]:
        """Return the lines for a terminal of `width` columns."""
        from rich.text import Text

        layout = self._find_layout(width)
        lines: list[Text] = []
        if self.header:
            titles = [Text(column.title, style="bold") for column in self.columns]
            lines += [Text(""), *self._lay_out_cells(titles, layout)]
            lines.append(Text(" " + "─" * (layout.width - 1)))
        for row in self._rows:
            block = [*self._lay_out_cells(row.cells, layout), *self._lay_out_folded(row, layout, width)]
            for line in block:
                line.stylize_before(row.style)
            lines += block
        return [*lines, Text("")] if self.header else lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.build_lines(options.max_width):
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    # --- layout ------------------------------------------------------------------------------------------

    @cached_property
    def _natural_widths(self) -> dict[int, int]:
        from rich.cells import cell_len

        return {
            index: max([cell_len(column.title), *(row.cells[index].cell_len for row in self._rows)])
            for index, column in enumerate(self.columns)
        }

    def _find_layout(self, width: int) -> _Layout:
        shown = list(range(len(self.columns)))
        folded: list[int] = []
        gap = _WIDE_GAP
        while True:
            layout = _Layout(
                shown=shown,
                folded=sorted(folded, key=lambda index: (self.columns[index].fold, index)),
                widths=dict(self._natural_widths),
                gap=gap,
            )
            if layout.width <= width:
                return layout
            foldable = [index for index in shown if self.columns[index].fold]
            if gap > _NARROW_GAP:
                gap = _NARROW_GAP
            elif foldable:
                highest = max(self.columns[index].fold for index in foldable)
                folded += [index for index in shown if self.columns[index].fold == highest]
                shown = [index for index in shown if self.columns[index].fold != highest]
            else:
                return self._narrow_names(layout, width)

    def _narrow_names(self, layout: _Layout, width: int) -> _Layout:
        """Make the columns that wrap narrower, the widest first; within words only if nothing else helps."""
        widths = dict(layout.widths)
        names = [index for index in layout.shown if self.columns[index].wrap]
        titles = [index for index in layout.shown if self.columns[index].wrap_title]
        for limits in (
            {index: self._find_longest_word(index) for index in (*names, *titles)},
            dict.fromkeys(names, _MIN_WRAP_WIDTH),
        ):
            while sum(widths[index] for index in layout.shown) + layout.width - sum(
                layout.widths[index] for index in layout.shown
            ) > width and (wide := [index for index in limits if widths[index] > limits[index]]):
                widths[max(wide, key=lambda index: widths[index])] -= 1
        return _Layout(shown=layout.shown, folded=layout.folded, widths=widths, gap=layout.gap)

    def _find_longest_word(self, index: int) -> int:
        from rich.cells import cell_len

        cells = [row.cells[index].plain for row in self._rows]
        if self.columns[index].wrap_title:
            return max(map(cell_len, [*_split_words(self.columns[index].title), *cells, ""]))
        texts = [self.columns[index].title, *cells]
        return max(cell_len(word) for text in texts for word in _split_words(text) or [""])

    # --- lines -------------------------------------------------------------------------------------------

    def _lay_out_cells(self, cells: Sequence[Text], layout: _Layout) -> list[Text]:
        from rich.text import Text

        wrapped = {
            index: _wrap(cells[index], layout.widths[index])
            if self.columns[index].wrap or self.columns[index].wrap_title
            else [cells[index]]
            for index in layout.shown
        }
        lines = []
        for number in range(max((len(parts) for parts in wrapped.values()), default=0)):
            line = Text(" ")
            for place, index in enumerate(layout.shown):
                part = wrapped[index][number] if number < len(wrapped[index]) else Text("")
                space = " " * max(0, layout.widths[index] - part.cell_len)
                line.append(" " * layout.gap if place else "")
                if self.columns[index].justify == "right":
                    line.append(space).append_text(part)
                else:
                    line.append_text(part).append(space)
            line.rstrip()
            lines.append(line)
        return lines

    def _lay_out_folded(self, row: _Row, layout: _Layout, width: int) -> list[Text]:
        """Return the second line of a row, wrapped between values."""
        from rich.text import Text

        parts = []
        for index in layout.folded:
            column, cell = self.columns[index], row.cells[index]
            text = cell.plain.strip()
            if not text or text in column.omit or column.is_drawing:
                continue
            before, _, after = column.folded.partition("{}")
            trimmed = cell.copy()
            trimmed.rstrip()
            part = Text(before).append_text(trimmed).append(after)
            parts += _wrap(part, max(_MIN_WRAP_WIDTH, width - _FOLD_INDENT))
        lines: list[Text] = []
        for part in parts:
            if lines and lines[-1].cell_len + 3 + part.cell_len <= width:
                lines[-1].append(" · ").append_text(part)
            else:
                lines.append(Text(" " * _FOLD_INDENT).append_text(part))
        for line in lines:
            line.stylize_before("dim")
        return lines


def render_table_text(table: TextTable, *, width: int = _UNLIMITED) -> str:
    """Return a table as lines of plain text without trailing spaces."""
    return "\n".join(line.plain.rstrip() for line in table.build_lines(width))


def _split_words(text: str) -> list[str]:
    """Split a text after spaces, underscores, dashes, slashes and commas.

    >>> _split_words("quickstart_addition (get-sum)")
    ['quickstart_', 'addition ', '(get-', 'sum)']
    """
    return [word for word in _BREAK.findall(text) if word]


def _wrap(text: Text, width: int) -> list[Text]:
    """Wrap a text between words, and within a word that is wider than the column. Further lines keep the indentation."""
    if text.cell_len <= width:
        return [text]
    plain = text.plain
    indent = len(plain) - len(plain.lstrip())
    cuts = list(_find_cuts(plain, width, indent))
    lines = list(text.divide(cuts))
    for number, line in enumerate(lines):
        line.rstrip()
        if number:
            line.pad_left(indent)
    return lines


def _find_cuts(text: str, width: int, indent: int) -> Iterator[int]:
    """Yield the places where a text is divided into lines."""
    from rich.cells import cell_len

    used = place = 0
    for word in _split_words(text):
        size = cell_len(word.rstrip())
        if used > indent and used + size > width:
            yield place
            used = indent
        while used + size > width > used:
            taken = max(1, width - used)
            yield place + taken
            place, word, used = place + taken, word[taken:], indent
            size = cell_len(word.rstrip())
        used += cell_len(word)
        place += len(word)
