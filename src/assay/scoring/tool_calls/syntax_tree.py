"""Parse Java and JavaScript with tree-sitter, which the extra `tools` installs."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage
from assay.scoring.tool_calls.python_calls import CallSyntaxError

__all__ = ["add_argument", "parse_source", "read_text"]


def parse_source(source: str, language: str) -> Any:
    """Return the root of the syntax tree.

    Raises:
        CallSyntaxError: The text has a syntax error.
    """
    root = _load_parser(language).parse(source.encode("utf-8", "surrogatepass")).root_node
    if _has_error_node(root):
        raise CallSyntaxError(f"not {language}: the text has a syntax error")
    return root


def _has_error_node(root: Any) -> bool:
    """Whether part of the text could not be parsed. A missing semicolon is no such part."""
    if not root.has_error:
        return False
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.type == "ERROR":
            return True
        nodes += node.children
    return False


@cache
def _load_parser(language: str) -> Any:
    try:
        tree_sitter = import_module("tree_sitter")
        grammar = import_module(f"tree_sitter_{language}")
    except ImportError as error:
        raise MissingPackage.of(
            "tree-sitter", f"reading function calls written in {language}", extra="tools"
        ) from error
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


def read_text(node: Any) -> str:
    """Return the source text of a node."""
    return str(node.text.decode("utf-8", "surrogatepass"))


def add_argument(arguments: dict[str | None, str], name: str | None, value: str) -> None:
    """Add an argument of a call.

    Raises:
        CallSyntaxError: The call has the argument already, or a second one without a name.
    """
    if name in arguments:
        raise CallSyntaxError("several arguments have no name" if name is None else f"two arguments `{name}`")
    arguments[name] = value
