"""Parse each module once for all tests of the architecture."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["parse_module", "walk_module"]


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def walk_module(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module."""
    return tuple(ast.walk(parse_module(path)))
