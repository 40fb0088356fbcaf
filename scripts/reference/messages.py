"""Collect the messages of all errors from the source, for the reference page of errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.core import errors

__all__ = ["collect_messages"]

SOURCE = Path(__file__).resolve().parents[2] / "src" / "assay"
PACKAGES_WITHOUT_MESSAGES = {"builtin_tasks", "testing"}
MESSAGE_OF_CLASS = {"MissingPackage"}
"""Errors that build their message from their arguments."""


def collect_messages() -> dict[str, list[tuple[str, str]]]:
    """Return error class -> sorted (message, package); placeholders stand for values."""
    found: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package in PACKAGES_WITHOUT_MESSAGES:
            continue
        for name, message in _find_messages(ast.parse(path.read_text("utf-8"))):
            found.setdefault(name, set()).add((message, package))
    return {name: sorted(messages) for name, messages in sorted(found.items())}


def _find_messages(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield class and message of every error that the code creates."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        kind: Any = getattr(errors, name, None)
        if name in MESSAGE_OF_CLASS or not (isinstance(kind, type) and issubclass(kind, errors.AssayError)):
            continue
        message = _format_message(node.args[0])
        if message:
            yield name, message


def _format_message(node: ast.expr) -> str:
    """Return the text of a string or an f-string; empty if it is computed elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and node.args:  # redact(f"…")
        return _format_message(node.args[0])
    if isinstance(node, ast.JoinedStr):
        parts = [_format_message(part) or "…" for part in node.values]
        text = "".join(parts)
        return "" if text.strip(" …") == "" else text
    return ""
