"""Packages that a helper imports only when it is called: a run would find out late, perhaps after every answer.

Read from the text of the helper file: what stands in the body of a function and of the functions it calls by name.
An import inside `try` or `if` is taken to be looked after.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec

from assay.tasks.functions import HelperFunction

__all__ = ["missing_packages"]


def missing_packages(function: HelperFunction) -> list[tuple[str, int]]:
    """(package, line) of what a function will import and cannot."""
    path = function.path
    if path is None:
        return []
    imports = _late_imports(str(path), path.stat().st_mtime_ns)
    found: dict[str, int] = {}
    waiting, seen = [function.__name__], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in imports:
            continue
        seen.add(name)
        packages, called = imports[name]
        waiting += called
        for package, line in packages:
            if not _is_there(package):
                found.setdefault(package, line)
    return list(found.items())


@lru_cache(maxsize=4096)
def _late_imports(path: str, changed_ns: int) -> dict[str, tuple[list[tuple[str, int]], set[str]]]:
    """By function of a file: the packages its body imports, with their lines, and the names it calls."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return {}
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            called = {
                inner.func.id
                for inner in ast.walk(node)
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
            }
            found[node.name] = (list(_imported(node.body)), called)
    return found


def _imported(statements: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    for statement in statements:
        match statement:
            case ast.Import(names=names, lineno=line):
                yield from ((alias.name.partition(".")[0], line) for alias in names)
            case ast.ImportFrom(module=str(module), level=0, lineno=line):
                yield module.partition(".")[0], line
            case ast.For(body=body) | ast.While(body=body) | ast.With(body=body):
                yield from _imported(body)


@lru_cache(maxsize=4096)
def _is_there(package: str) -> bool:
    if package in sys.modules or package in sys.stdlib_module_names:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False
