"""What importing a helper file does, read from its source: the packages that it imports, and its draws at random."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from assay.core.python_syntax import parse_python

__all__ = [
    "find_import_draws",
    "find_missing_call_imports",
    "find_missing_imports",
    "find_missing_part",
    "is_installed",
    "iterate_imports",
]

_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)' \(unknown location\)")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def find_missing_imports(path: Path) -> list[tuple[str, int]]:
    """Return (package, line) of the packages that a helper file imports when it is imported and that are not installed."""
    return [(package, line) for package, line in iterate_imports(_parse(path)) if _is_missing(package, path)]


def find_missing_call_imports(path: Path, name: str) -> list[tuple[str, int]]:
    """Return (package, line) of the packages that a function of a helper file imports when it is called and that are not
    installed.

    Reads the source: the body of the function, or of the methods of a class, and of the functions of the file that it calls
    by name. An import inside `try` or `if` counts as optional.
    """
    try:
        imports = _find_call_imports(str(path), path.stat().st_mtime_ns)
    except OSError:
        return []
    found: dict[str, int] = {}
    pending, seen = [name], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in imports:
            continue
        seen.add(name)
        packages, called = imports[name]
        pending += called
        for package, line in packages:
            if _is_missing(package, path):
                found.setdefault(package, line)
    return list(found.items())


@lru_cache(maxsize=4096)
def _find_call_imports(path: str, changed_ns: int) -> dict[str, tuple[list[tuple[str, int]], list[str]]]:
    """Return for each function and class of a file the packages its body imports, with line numbers, and the names it calls."""
    found = {}
    for node in _parse(Path(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            methods = [
                one for one in ast.walk(node) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
            bodies = [one.body for one in methods] if isinstance(node, ast.ClassDef) else [node.body]
            called = {
                inner.func.id: None
                for inner in ast.walk(node)
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
            }
            found[node.name] = ([one for body in bodies for one in iterate_imports(body)], [*called])
    return found


def _is_missing(package: str, path: Path) -> bool:
    """Return whether a package is neither installed nor a module beside the helper file."""
    beside = (path.parent / package).is_dir() or (path.parent / f"{package}.py").is_file()
    return not beside and not is_installed(package)


def _parse(path: Path) -> list[ast.stmt]:
    """Return the statements of a file; none if it cannot be read."""
    try:
        return parse_python(path.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []


def find_import_draws(path: Path) -> list[tuple[str, int | None]]:
    """Return what the import of a helper file does to the global random generators, in its order.

    `("random", 42)` and `("numpy", 42)` set a seed: `random.seed(42)` at the top of the file. `("rich", None)` draws: the first
    import of rich does, and scikit-learn 1.9 imports it if it is installed.
    """
    found: list[tuple[str, int | None]] = []
    for statement in _parse(path):
        match statement:
            case ast.Expr(value=ast.Call(func=function, args=[ast.Constant(value=int(seed))])):
                generator = _SEED_FUNCTIONS.get(ast.unparse(function))
                found += [] if generator is None else [(generator, seed)]
            case ast.Import() | ast.ImportFrom():
                packages = {package for package, _ in iterate_imports([statement])}
                found += [("rich", None)] if "sklearn" in packages and _imports_rich() else []
    return found


_SEED_FUNCTIONS = {"random.seed": "random", "np.random.seed": "numpy", "numpy.random.seed": "numpy"}


@lru_cache(maxsize=1)
def _imports_rich() -> bool:
    """Whether the installed scikit-learn imports rich, for its progress bars."""
    try:
        found = find_spec("sklearn")
    except (ImportError, ValueError):
        return False
    folders = found.submodule_search_locations if found is not None else None
    return any((Path(folder) / "callback").is_dir() for folder in folders or ()) and is_installed("rich")


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


def find_missing_part(error: ImportError) -> str:
    """Return the module that is not installed, of a package whose folder several distributions share; empty for other errors.

    `from google import genai` raises no `ModuleNotFoundError` if another distribution has a folder `google`.
    """
    found = _NO_NAME.fullmatch(error.msg or "")
    package = sys.modules.get(found[2]) if found is not None else None
    if found is None or package is None:
        return ""
    folders = [Path(folder).parents for folder in getattr(package, "__path__", ())]
    is_shared = folders and all(any(one.name in _PACKAGE_FOLDERS for one in parents) for parents in folders)
    return f"{found[2]}.{found[1]}" if is_shared else ""


@lru_cache(maxsize=4096)
def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    if package in sys.modules or package in sys.stdlib_module_names:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False
