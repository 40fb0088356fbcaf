"""Decide how tests can reach a candidate: across a pipe, or only in the process of the candidate.

The decision depends on the tests alone, so that a candidate cannot choose the weaker way.
"""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from assay.core.python_syntax import parse_python

__all__ = ["CandidateProtocol", "choose_protocol"]

Mode = Literal["function_level", "class_level", "in_process"]

_NEED_ONE_PROCESS = frozenset(
    "asyncio builtins contextlib ctypes doctest gc importlib inspect io logging multiprocessing signal sys threading timeit"
    " tracemalloc types unittest warnings weakref".split()
)
"""Modules with which tests look into the process of the candidate or change it."""

_NEED_NAMESPACE = frozenset({"eval", "exec", "globals", "locals", "vars", "dir", "__import__", "compile"})
_DATA_ATTRIBUTES = frozenset(
    name for kind in (list, dict, str, set, tuple, int, float, complex, bytes) for name in dir(kind)
) | {"shape", "dtype", "tolist", "size", "ndim", "all", "any", "sum", "mean", "T", "flatten"}
_ALIASES = {"np": "numpy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateProtocol:
    """How tests reach a candidate."""

    mode: Mode
    """`function_level`: calls cross a pipe. `class_level`: the same, and objects of the candidate compare themselves.
    `in_process`: the tests run in the process of the candidate."""

    separate: bool = True
    """Whether the tests are a program of their own, which runs after the candidate."""

    names: tuple[str, ...] = ()
    """The names that the tests take from the candidate."""

    modules: tuple[tuple[str, str], ...] = ()
    """Names that the tests use as modules, and the modules. They are imported, not taken from the candidate."""

    def to_json(self) -> dict[str, Any]:
        """Return the protocol as the runner reads it."""
        return {
            "mode": self.mode,
            "separate": self.separate,
            "names": list(self.names),
            "modules": dict(self.modules),
        }


@lru_cache(maxsize=4096)
def choose_protocol(tests: str) -> CandidateProtocol:
    """Return how these tests can reach a candidate.

    >>> choose_protocol("assert add(2, 3) == 5").names
    ('add',)
    >>> choose_protocol("import unittest").mode
    'in_process'
    """
    try:
        tree = parse_python(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return CandidateProtocol(mode="in_process", separate=False)
    nodes = list(ast.walk(tree))
    if any(map(_needs_one_process, nodes)):
        return CandidateProtocol(mode="in_process")
    bound = _list_bound_names(nodes)
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    free = loaded - bound
    names = free - set(dir(builtins))
    if not names:  # such as a task whose function is called `sum`
        names = {
            node.func.id
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in free
        }
    return CandidateProtocol(
        mode="class_level" if _uses_objects(nodes, names) else "function_level",
        names=tuple(sorted(names)),
        modules=tuple(sorted(_find_modules(nodes, names).items())),
    )


def _needs_one_process(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(not _is_harmless(alias.name) for alias in names)
        case ast.ImportFrom(module=module, names=names):
            return not _is_harmless(module or "") or any(alias.name == "*" for alias in names)
        case ast.Name(id=name):
            return name in _NEED_NAMESPACE
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            return True  # it may change a module or function of the candidate
        case ast.ClassDef() | ast.AsyncFunctionDef() | ast.Await() | ast.Global():
            return True  # the candidate may use the class; a coroutine cannot cross a pipe
    return False


def _is_harmless(module: str) -> bool:
    """Return whether tests that import a module still work in a process of their own."""
    top = module.partition(".")[0]
    return top not in _NEED_ONE_PROCESS and (top in sys.stdlib_module_names or top == "numpy")


def _list_bound_names(nodes: list[ast.AST]) -> set[str]:
    """Return all names that the tests assign or import anywhere."""
    bound: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=asname):
                bound.add(asname or name.partition(".")[0])
            case ast.ExceptHandler(name=str() as name):
                bound.add(name)
    return bound


def _find_modules(nodes: list[ast.AST], names: set[str]) -> dict[str, str]:
    """Return the names used like `math.sqrt`, for modules that the candidate imports."""
    found = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    modules = {name: _ALIASES.get(name, name) for name in found}
    return {name: module for name, module in modules.items() if _is_harmless(module)}


def _uses_objects(nodes: list[ast.AST], names: set[str]) -> bool:
    """Return whether the tests use attributes that only objects of the candidate's own classes can have."""
    calls = {
        id(node)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }
    variables = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and id(node.value) in calls
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr not in _DATA_ATTRIBUTES
        and (id(node.value) in calls or (isinstance(node.value, ast.Name) and node.value.id in variables))
        for node in nodes
    )
