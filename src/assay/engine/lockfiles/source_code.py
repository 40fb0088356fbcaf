"""Trace the source code that a function uses: its digest, and the packages that it imports.

Reads source files and imports nothing. Follows names through the modules of Assay, so that the digest of a metric changes with
the code that computes it and not with unrelated code.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.fingerprints import digest_text

__all__ = ["SourceTrace", "list_imports", "trace_module", "trace_objects"]

_OWN = "assay"
_NOT_FOLLOWED = ("assay.core.", "assay.store.")
"""Records, errors and registries: every function uses them, and they compute no score."""

_FOREIGN = frozenset(("assay", "assay_compat", "lm_eval", "lmms_eval"))
"""Names that Assay provides itself."""


@dataclass(frozen=True, slots=True)
class SourceTrace:
    """The source code that some functions use."""

    digest: str
    packages: frozenset[str] = frozenset()
    """Import names of the packages that are not Assay's, whether installed or not."""


@dataclass(frozen=True, slots=True)
class _Module:
    """A parsed module: its definitions and the names it imports."""

    definitions: dict[str, tuple[ast.stmt, ...]]
    imports: dict[str, tuple[str, str]]
    """Local name -> (module, name in that module; empty: the module itself)."""

    lines: list[str] = field(repr=False)


def trace_objects(objects: Iterable[Any]) -> SourceTrace:
    """Trace functions and classes; an object with another type is traced as its class."""
    starts = []
    for thing in objects:
        named = inspect.unwrap(thing) if callable(thing) else thing
        named = named if hasattr(named, "__qualname__") else type(named)
        starts.append((str(named.__module__), str(named.__qualname__).partition(".")[0]))
    return _trace(tuple(starts))


@lru_cache(maxsize=16)
def trace_module(name: str) -> SourceTrace:
    """Trace all modules of the package that a module of Assay belongs to: `assay.models.hf.adapter` -> `assay.models.hf`."""
    parts = name.split(".")
    root = _find_file(".".join(parts[:3]))
    if root is None:
        return SourceTrace(digest_text(name), frozenset(() if parts[0] in _FOREIGN else (parts[0],)))
    files = sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [root]
    texts = [file.read_text("utf-8") for file in files]
    packages = {module for text in texts for module in list_imports(text)}
    return SourceTrace(digest_text(*texts), frozenset(packages))


def list_imports(source: str) -> set[str]:
    """Return the packages that a source text imports anywhere, without the standard library and Assay's own names.

    >>> sorted(list_imports("import os, numpy.linalg\\ndef f():\\n    from sacrebleu import corpus_bleu"))
    ['numpy', 'sacrebleu']
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return set()
    found = {module for node in nodes for module, _, _ in _read_import(node, "")}
    return set(_drop_known(found))


def _drop_known(modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        package = module.partition(".")[0]
        if package and package not in sys.stdlib_module_names and package not in _FOREIGN:
            yield package


@lru_cache(maxsize=256)
def _trace(starts: tuple[tuple[str, str], ...]) -> SourceTrace:
    waiting = list(starts)
    seen: set[tuple[str, str]] = set()
    sources: dict[tuple[str, str], str] = {}
    packages: set[str] = set()
    while waiting:
        place = waiting.pop()
        module_name, name = place
        if place in seen:
            continue
        seen.add(place)
        if not module_name.startswith(f"{_OWN}."):
            packages |= set(_drop_known([module_name]))
            continue
        module = None if module_name.startswith(_NOT_FOLLOWED) else _parse_module(module_name)
        if module is None:
            continue
        nodes = module.definitions.get(name, ())
        if not nodes and name in module.imports:
            waiting.append(_resolve(module.imports[name]))
        for node in nodes:
            text = "".join(module.lines[node.lineno - 1 : node.end_lineno])
            sources[place] = sources.get(place, "") + text
            waiting += _list_uses(node, module, module_name)
    pieces = [f"{module}.{name}\n{text}" for (module, name), text in sorted(sources.items())]
    return SourceTrace(digest_text(*pieces), frozenset(packages))


def _list_uses(node: ast.stmt, module: _Module, module_name: str) -> Iterator[tuple[str, str]]:
    """Yield the (module, name) that a definition refers to."""
    for part in ast.walk(node):
        for source, name, _ in _read_import(part, module_name):
            yield _resolve((source, name))
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            imported = module.imports.get(part.value.id)
            if imported is not None and not imported[1]:
                yield _resolve((imported[0], part.attr))
        if isinstance(part, ast.Name):
            if part.id in module.imports:
                yield _resolve(module.imports[part.id])
            elif part.id in module.definitions:
                yield module_name, part.id


def _resolve(imported: tuple[str, str]) -> tuple[str, str]:
    """Return `(assay.stats.translation, "")` for `from assay.stats import translation`."""
    module, name = imported
    if name and module.startswith(_OWN) and _find_file(f"{module}.{name}") is not None:
        return f"{module}.{name}", ""
    return module, name


@lru_cache(maxsize=256)
def _parse_module(name: str) -> _Module | None:
    path = _find_file(name)
    if path is None:
        return None
    source = path.read_text("utf-8")
    definitions: dict[str, tuple[ast.stmt, ...]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for node in ast.parse(source).body:
        for module, imported, local in _read_import(node, name):
            imports[local] = (module, imported)
        for defined in _list_defined_names(node):
            definitions[defined] = (*definitions.get(defined, ()), node)
    return _Module(definitions, imports, source.splitlines(keepends=True))


def _list_defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _read_import(node: ast.AST, inside: str) -> Iterator[tuple[str, str, str]]:
    """Yield (module, name in it, local name) of an import statement; `inside` is the module that contains it."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, "", alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "import_module" and isinstance(node.args[0].value, str):
            yield node.args[0].value, "", ""
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            parents = inside.split(".")[: -node.level] if inside else []
            module = ".".join([*parents, *([module] if module else [])])
        for alias in node.names:
            yield module, alias.name, alias.asname or alias.name


@lru_cache(maxsize=512)
def _find_file(module: str) -> Path | None:
    if not module.startswith(f"{_OWN}."):
        return None
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None
