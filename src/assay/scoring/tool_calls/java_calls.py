"""Read a function call written as Java: `Search.find(text="a", limit=10L)`.

Arguments are source text; `java_values` converts them. The parser is tree-sitter, of the extra `tools`.
"""

from __future__ import annotations

from typing import Any

from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError
from assay.scoring.tool_calls.syntax_tree import add_argument, parse_source, read_text

__all__ = ["parse_java_call"]

_WHOLE_TEXT = frozenset({"identifier", "class_literal", "type_identifier", "method_invocation"})
_POSITIONAL = frozenset({"identifier", "class_literal", "set"})
_PUNCTUATION = frozenset({",", "(", ")"})


def parse_java_call(source: str) -> Call | None:
    """Return the first method call of the source text, or None if it has none.

    Raises:
        CallSyntaxError: The text is not Java, or an argument is given twice.
    """
    return _find_call(parse_source(source, "java"))


def _find_call(node: Any) -> Call | None:
    if node.type != "method_invocation":
        calls = (_find_call(child) for child in node.children)
        return next((call for call in calls if call is not None), None)
    name = read_text(node.child_by_field_name("name"))
    if (owner := node.child_by_field_name("object")) is not None:
        name = f"{read_text(owner)}.{name}"
    listed = node.child_by_field_name("arguments")
    return None if listed is None else Call(name, _read_arguments(listed))


def _read_arguments(node: Any) -> dict[str | None, str]:
    arguments: dict[str | None, str] = {}
    for child in node.children:
        if child.type == "assignment_expression":
            name, _, value = child.children[:3]
            add_argument(arguments, read_text(name), _write_value(value))
        elif child.type in _POSITIONAL:
            add_argument(arguments, None, _write_value(child))
    return arguments


def _write_value(node: Any, *, nested: bool = False) -> str:
    """Write an argument as source text in one form: without the quotes of a text, with single spaces."""
    text = read_text(node)
    match node.type:
        case "string_literal" | "character_literal":
            return text if nested else text[1:-1]
        case kind if kind in _WHOLE_TEXT:
            return text
        case "array_creation_expression":
            kind, value = (node.child_by_field_name(name) for name in ("type", "value"))
            if kind is None or value is None:
                raise CallSyntaxError("an array without its items")
            return f"new {_write_value(kind, nested=True)}[]{_write_value(value, nested=True)}"
        case "object_creation_expression":
            return _write_object(node)
        case _ if node.child_count:
            return "".join(_write_value(child, nested=True) for child in node.children)
        case _:
            return text


def _write_object(node: Any) -> str:
    kind = _write_value(node.child_by_field_name("type"), nested=True)
    listed = node.child_by_field_name("arguments")
    values = [] if listed is None else [child for child in listed.children if child.type not in _PUNCTUATION]
    return f"new {kind}({', '.join(_write_value(value, nested=True) for value in values)})"
