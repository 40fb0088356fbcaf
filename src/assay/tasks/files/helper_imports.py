"""The packages that a helper file imports, read from its source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from assay.core.python_syntax import parse_python

__all__ = ["find_missing_imports", "is_installed", "iterate_imports"]


def find_missing_imports(path: Path) -> list[tuple[str, int]]:
    """Return (package, line) of the packages that a helper file imports when it is imported and that are not installed."""
    try:
        tree = parse_python(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    return [
        (package, line)
        for package, line in iterate_imports(tree.body)
        if not is_installed(package)
        and not (path.parent / package).is_dir()
        and not (path.parent / f"{package}.py").is_file()
    ]


def iterate_imports(statements: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield (package, line) of each import. One inside `try` or `if` counts as optional."""
    for statement in statements:
        match statement:
            case ast.Import(names=names, lineno=line):
                yield from ((alias.name.partition(".")[0], line) for alias in names)
            case ast.ImportFrom(module=str(module), level=0, lineno=line):
                yield module.partition(".")[0], line
            case ast.For(body=body) | ast.While(body=body) | ast.With(body=body):
                yield from iterate_imports(body)


@lru_cache(maxsize=4096)
def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    if package in sys.modules or package in sys.stdlib_module_names:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False
