"""Read function calls written as Python: `[area(base=10), weather.today(city="Rome")]`. Nothing is executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from assay.core.python_syntax import parse_python
from assay.scoring.tool_calls.matching import Call

__all__ = ["CallSyntaxError", "parse_python_calls"]

_MAX_EXPONENT = 10_000
_MAX_REPEATED_LENGTH = 1_000_000
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class CallSyntaxError(ValueError):
    """The text does not consist of function calls."""


def parse_python_calls(text: str) -> list[Call]:
    """Read a call, or a list of calls. Arguments without a name are ignored.

    >>> parse_python_calls("[area(base=10, unit='cm')]")
    [Call(name='area', arguments={'base': 10, 'unit': 'cm'})]

    Raises:
        CallSyntaxError: The text is something else.
    """
    try:
        body = parse_python(text, "eval").body
        elements = [body] if isinstance(body, ast.Call) else _list_elements(body)
        return [_read_call(element) for element in elements]
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise CallSyntaxError(f"not a list of function calls: {error}") from None


def _list_elements(node: ast.expr) -> list[ast.Call]:
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        raise CallSyntaxError(f"{type(node).__name__} instead of a list")
    calls = [element for element in node.elts if isinstance(element, ast.Call)]
    if len(calls) != len(node.elts):
        raise CallSyntaxError("an item of the list is not a call")
    return calls


def _read_call(node: ast.Call) -> Call:
    return Call(_read_name(node.func), {word.arg: _read_value(word.value) for word in node.keywords})


def _read_name(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names))


def _read_value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.UnaryOp(operand=ast.Constant(value=value)):
            return -value  # type: ignore[operator]  # a TypeError means that it is no number
        case ast.List(elts=items):
            return [_read_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_read_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return {
                _read_value(key): _read_value(value)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            }
        case ast.Name(id=name):
            return name
        case ast.BinOp():
            return _compute(node)
        case ast.Call() if node.keywords:
            call = _read_call(node)
            return {call.name: dict(call.arguments)}
        case ast.Call():
            return ast.unparse(node)
        case ast.Subscript():
            return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
        case _:
            raise CallSyntaxError(f"{type(node).__name__} is not a value")


def _compute(node: ast.expr) -> Any:
    """Compute arithmetic on constants, within limits."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand)
        case ast.List(elts=items):
            return [_compute(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_compute(item) for item in items)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            first, second = _compute(left), _compute(right)
            if isinstance(sign, ast.Pow) and not (
                isinstance(first, (int, float))
                and isinstance(second, (int, float))
                and abs(second) <= _MAX_EXPONENT
            ):
                raise CallSyntaxError("the power is too large to compute")
            if isinstance(sign, ast.Mult):
                _check_repetition(first, second)
                _check_repetition(second, first)
            return _OPERATORS[type(sign)](first, second)
        case _:
            raise CallSyntaxError(f"{type(node).__name__} in an expression is not a constant")


def _check_repetition(sequence: Any, count: Any) -> None:
    is_repetition = isinstance(sequence, (str, bytes, list, tuple)) and isinstance(count, int)
    if is_repetition and len(sequence) * count > _MAX_REPEATED_LENGTH:
        raise CallSyntaxError("the repeated sequence is too long")
