"""The syntax of filter expressions."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.store.filters.syntax import (
    And,
    Condition,
    FilterError,
    Membership,
    Not,
    Or,
    Search,
    parse_expression,
    quote_name,
    quote_value,
)


def test_a_long_expression_is_a_conjunction_of_conditions() -> None:
    found = parse_expression(
        r'score<1 and length>400 and not truncated and answer~/\d+/ and subject="Algebra"'
    )
    assert isinstance(found, And)
    score, length, truncated, answer, subject = found.operands
    assert isinstance(score, Condition)
    assert score.value is not None
    assert (score.name.text, score.operator, score.value.number) == ("score", "<", 1.0)
    assert isinstance(length, Condition)
    assert isinstance(truncated, Not)
    assert isinstance(answer, Condition)
    assert answer.value is not None
    assert answer.value.pattern is not None
    assert isinstance(subject, Condition)
    assert subject.value is not None
    assert subject.value.text == "Algebra"


def test_and_binds_stronger_than_or_and_not_strongest() -> None:
    found = parse_expression("a or not b and c")
    assert isinstance(found, Or)
    assert isinstance(found.operands[1], And)
    assert isinstance(found.operands[1].operands[0], Not)


def test_other_forms() -> None:
    assert parse_expression("   ") is None
    assert parse_expression('"capital of"') == Search(text="capital of")
    different = parse_expression("a != 1")
    assert isinstance(different, Not)
    member = parse_expression("level not in (1, two, 'three')")
    assert isinstance(member, Not)
    assert isinstance(member.operand, Membership)
    assert [value.text for value in member.operand.values] == ["1", "two", "three"]
    metric = parse_expression("exact_match[flexible-extract]=1")
    assert isinstance(metric, Condition)
    assert (metric.name.text, metric.name.part) == ("exact_match", "flexible-extract")
    column = parse_expression("`a column` >= -1.5e3")
    assert isinstance(column, Condition)
    assert column.value is not None
    assert (column.name.text, column.name.quoted, column.value.number) == ("a column", True, -1500.0)
    slashes = parse_expression(r"response~/a\/b[/]/i")
    assert isinstance(slashes, Condition)
    assert slashes.value is not None
    assert slashes.value.text == "a/b[/]"


@pytest.mark.parametrize(
    ("text", "what", "position", "hint"),
    [
        ("score<", "a value is missing", 6, "for example"),
        ("score<1 wrong", "`and` or `or` is missing", 8, "write `and`"),
        ("(score<1", "this `(` has no `)`", 0, "close it"),
        ("score<1)", "there is no `(` for this `)`", 7, ""),
        ("score<1 and", "the expression ends too early", 11, "a condition is missing"),
        ("and", "expected a condition, not `and`", 0, "for example"),
        ("a & b", "unexpected character `&`", 2, "write `and`"),
        ('subject="Alg', "the text has no end", 8, 'close it with "'),
        ("`subject", "the name has no end", 0, "close it with `"),
        ("answer~/a", "the pattern has no end", 7, "close it with /"),
        ("answer=/a/", "a pattern follows `~` or `!~`", 7, "write ~/a/"),
        ("answer~/a/x", "unknown flag `x`", 10, "i ignores case"),
        ("answer~/x(a/", "this `(` has no `)`", 9, "parenthesis"),
        ("a[", "expected the name of a filter in the brackets", 2, ""),
        ("a[b", "this `[` has no `]`", 1, "close it"),
        ("a in 3", "expected `(` after `in`", 5, "for example"),
        ('"a"=1', "a condition starts with a name", 0, "backticks"),
        ("date=2024-01", "unexpected character `2`", 5, "quotation marks"),
        ("not " * 80 + "a", "the expression is nested too deeply", 244, ""),
        ("a" * 5000, "the expression is longer than 4000 characters", 4000, ""),
    ],
)
def test_errors_have_a_position_and_a_hint(text: str, what: str, position: int, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_expression(text)
    assert (caught.value.what, caught.value.position) == (what, position)
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


def test_an_error_points_at_the_expression() -> None:
    with pytest.raises(FilterError) as caught:
        parse_expression("score <")
    assert "    score <\n           ^" in caught.value.point_at("score <").where
    assert pickle.loads(pickle.dumps(caught.value)).position == 7


@given(st.text("abs<>=!~ ()[],/\\\"'`0.5-and or not in&|{}*+?\n", max_size=30))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    problem = None
    try:
        parse_expression(text)
    except FilterError as error:
        problem = error
    assert problem is None or (problem.what and 0 <= problem.position <= len(text))


@given(st.text(max_size=20))
def test_quoted_values_are_read_back(value: str) -> None:
    found = parse_expression(f"name={quote_value(value)}")
    assert isinstance(found, Condition)
    assert found.value is not None
    assert found.value.text == value


def test_names_with_spaces_are_quoted() -> None:
    assert quote_name("subject") == "subject"
    assert quote_name("my column") == "`my column`"
    assert quote_name("and") == "`and`"
