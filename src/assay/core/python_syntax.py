"""Parse Python source text.

CPython before 3.11.8 counts the depth of a syntax tree once per interpreter. If the garbage collector lets another thread
parse in the meantime, `ast.parse` raises SystemError although the text is fine; parsing again succeeds.
"""

from __future__ import annotations

import ast
from typing import Any, Literal, overload

__all__ = ["evaluate_literal", "parse_python"]

_ATTEMPTS = 20


@overload
def parse_python(text: str | bytes, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(text: str | bytes, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(text: str | bytes, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """Return the syntax tree of a module, or of an expression (`mode="eval"`).

    Raises:
        SyntaxError: The text is not valid Python.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return ast.parse(text) if mode == "exec" else ast.parse(text, mode="eval")
        except SystemError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def evaluate_literal(text: str) -> Any:
    """Return the value of a Python literal: numbers, strings, lists, dictionaries and the like.

    >>> evaluate_literal(" [1, 'a']")
    [1, 'a']

    Raises:
        SyntaxError, ValueError: The text is not a literal.
    """
    return ast.literal_eval(parse_python(text.lstrip(" \t"), "eval"))
