from __future__ import annotations

import ast
import gc

import pytest

from assay.core.python_syntax import evaluate_literal, parse_python

SOURCE = "\n".join(f"x{number} = [{number}, {{'a': f({number})}}]" for number in range(300))


class ParsesWhenCollected:
    """Garbage whose finalizer parses, as another thread may while the collector runs."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        ast.parse("a = 1")


def test_parsing_succeeds_while_garbage_is_collected() -> None:
    """CPython 3.11.7 raises SystemError in about two of three of these calls."""
    gc.collect()
    for _ in range(20):
        for _ in range(100):
            ParsesWhenCollected()
        assert len(parse_python(SOURCE).body) == 300


def test_an_expression_is_parsed() -> None:
    assert isinstance(parse_python("f(x=1)", "eval").body, ast.Call)


@pytest.mark.parametrize(
    ("text", "value"), [(" [1, 'a']", [1, "a"]), ("\t{'a': None}", {"a": None}), ("-0.5", -0.5)]
)
def test_literals_are_evaluated_as_by_ast(text: str, value: object) -> None:
    assert evaluate_literal(text) == value == ast.literal_eval(text)


@pytest.mark.parametrize("text", ["f(1)", "[1,", "", "a"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        evaluate_literal(text)
