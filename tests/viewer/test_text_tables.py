"""The layout of tables: gaps, folded columns and wrapped names."""

from __future__ import annotations

import pytest

from assay.viewer.text_tables import Column, TextTable, render_table_text


def build_table(*rows: tuple[str, ...]) -> TextTable:
    table = TextTable(
        columns=[
            Column(title="task", wrap=True),
            Column(title="shots", justify="right", fold=2, folded="{}-shot", omit=frozenset({"0"})),
            Column(title="value", justify="right"),
            Column(fold=3, is_drawing=True),
            Column(title="filter", fold=1, folded="filter {}"),
        ]
    )
    for row in rows:
        table.add_row(*row)
    return table


ROW = ("a_long_name", "5", "0.2500", "──●──", "strict-match")


def test_a_table_that_fits_has_one_line_per_row() -> None:
    assert render_table_text(build_table(ROW, ("b", "0", "1.0000", "", ""))) == (
        "\n"
        " task          shots    value           filter\n"
        " ──────────────────────────────────────────────────\n"
        " a_long_name       5   0.2500   ──●──   strict-match\n"
        " b                 0   1.0000\n"
    ).replace("──\n a_long", "───\n a_long")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (48, [" a_long_name      5  0.2500  ──●──  strict-match"]),
        (41, [" a_long_name      5  0.2500  strict-match"]),
        (34, [" a_long_name  0.2500  strict-match", "     5-shot"]),
        (30, [" a_long_name  0.2500", "     filter strict-match", "     5-shot"]),
        (16, [" a_long_  0.2500", " name", "     filter", "     strict-", "     match", "     5-shot"]),
    ],
)
def test_columns_fold_in_the_order_of_their_numbers(width: int, lines: list[str]) -> None:
    shown = render_table_text(build_table(ROW), width=width).splitlines()
    assert shown[3:] == lines
    assert all(len(line) <= width for line in shown if "strict" not in line)


def test_omitted_and_empty_values_have_no_second_line() -> None:
    shown = render_table_text(build_table(("b", "0", "1.0000", "", "")), width=12)
    assert shown.splitlines()[3:] == [" b     1.0000"]


def test_a_word_that_is_wider_than_the_terminal_is_divided() -> None:
    table = TextTable(columns=[Column(title="name", wrap=True), Column(title="n")])
    table.add_row("  abcdefghijklmnopqrst", "1")
    lines = render_table_text(table, width=14).splitlines()[3:]
    assert lines == ["   abcdefgh  1", "   ijklmnop", "   qrst"]


def test_markup_is_not_counted_and_wide_characters_count_twice() -> None:
    table = TextTable(columns=[Column(title="a"), Column(title="b")])
    table.add_row("[red]数学[/]", "x")
    table.add_row("abcd", "y")
    assert render_table_text(table).splitlines()[3:] == [" 数学   x", " abcd   y"]
