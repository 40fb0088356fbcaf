"""Metrics without values: those that a task lists but never reports.

Which metrics `process_results` returns is read from its source code. The answer is certain or None: a function with computed
keys can return any metric.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from assay.core.errors import TaskError
from assay.core.python_syntax import parse_python
from assay.core.records.specs import TaskSpec
from assay.scoring.likelihoods import CHOICE_METRICS, is_pair_of_choices
from assay.scoring.metrics import METRICS

__all__ = ["find_metrics_without_values", "find_result_keys", "is_misspelled"]

_REPORTABLE_METRICS: Mapping[str, frozenset[str]] = {
    "loglikelihood": frozenset(("acc", "perplexity", "bypass")),
    "loglikelihood_rolling": frozenset(("word_perplexity", "byte_perplexity", "bits_per_byte", "bypass")),
    "multiple_choice": CHOICE_METRICS,
}
"""Metrics that tasks of an output type can report; output types that generate text are not listed."""


def find_metrics_without_values(spec: TaskSpec) -> Iterator[TaskError]:
    """Yield an error for each metric of a task that can have no value, and one for a task without metrics."""
    listed = bool(spec.metrics) or spec.config.get("metric_list") is not None
    keys = None if spec.process_results is None else find_result_keys(_load(spec.process_results))
    if spec.config.get("class") is not None:
        return
    if listed and not spec.metrics and not (spec.process_results and spec.dialect.reports_unlisted_metrics):
        yield TaskError(
            "the task has no metric", where=spec.place("metric_list"), hint=_suggest_metrics(spec, keys)
        )
    elif keys is not None and not keys and not spec.metrics:
        yield TaskError(
            "`process_results` returns no metric",
            where=spec.place("process_results"),
            hint="return a dictionary with a score for each metric",
        )
    for index, entry in enumerate(spec.metrics):
        where = entry.where or spec.place(f"metric_list[{index}]")
        if "judge" in entry.arguments or entry.name == "bypass":
            continue
        if spec.process_results is None:
            reported = _REPORTABLE_METRICS.get(spec.output_type)
            known = METRICS.get(entry.name) if entry.name in METRICS else None
            if (
                reported is not None
                and known is not None
                and entry.name not in reported
                and not is_pair_of_choices(known)
            ):
                others = ", ".join(sorted(reported - {"bypass"}))
                yield TaskError(
                    f"a {spec.output_type} task never reports `{entry.name}`",
                    where=where,
                    hint=f"it can report: {others}",
                )
        elif keys is not None and entry.name not in keys:
            yield TaskError(
                f"`process_results` never returns the metric `{entry.name}`",
                where=where,
                hint=f"it returns: {', '.join(sorted(keys)) or 'nothing'}",
            )


def is_misspelled(spec: TaskSpec, error: TaskError) -> bool:
    """Whether `process_results` returns the metric of an error in another case: a mistake of task files that run elsewhere."""
    if spec.process_results is None:
        return False
    keys = find_result_keys(_load(spec.process_results)) or frozenset()
    return any(f"`{key.casefold()}`" in error.what.casefold() for key in keys)


def _suggest_metrics(spec: TaskSpec, keys: frozenset[str] | None) -> str:
    names = sorted(keys) if keys else list(spec.output_type.default_metrics)
    return f"list one below `metric_list`: {', '.join(names)}" if names else "list one below `metric_list`"


def _load(function: Any) -> Any:
    return function.load() if hasattr(function, "load") else function


class _UnknownKeys(Exception):
    """The keys depend on something that the source code does not show."""


def find_result_keys(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keys of the dictionaries that a function returns; None if its source code does not show them."""
    function = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(function)
    except TypeError:  # a class instance, or a function written in C
        return None
    tree = _parse(file) if file is not None else None
    name = getattr(function, "__qualname__", "")
    if tree is None or not isinstance(name, str):
        return None
    found = _find_functions(tree).get(name)
    if found is None:
        return None
    try:
        return frozenset(_Module(tree).find_function_keys(found))
    except (_UnknownKeys, RecursionError):
        return None


@lru_cache(maxsize=256)
def _parse(file: str) -> ast.Module | None:
    try:
        with open(file, "rb") as stream:
            return parse_python(stream.read())
    except (OSError, SyntaxError, ValueError):
        return None


def _find_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module by name; a name with several definitions is left out."""
    found: dict[str, ast.FunctionDef] = {}
    repeated: set[str] = set()
    for node in tree.body:
        names = [node.name] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else []
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        repeated.update(name for name in names if name in found)
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
    return {name: node for name, node in found.items() if name not in repeated}


class _Module:
    """Reads functions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = _find_functions(tree)
        self._open: list[str] = []

    def find_function_keys(self, function: ast.FunctionDef) -> set[str]:
        """Return the keys that a function returns.

        Raises:
            _UnknownKeys: They are computed.
        """
        if function.decorator_list or function.name in self._open:
            raise _UnknownKeys
        self._open.append(function.name)
        try:
            own = list(_walk(function))
            if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) for node in own):
                raise _UnknownKeys
            returned = [node.value for node in own if isinstance(node, ast.Return) and node.value is not None]
            if not returned:
                raise _UnknownKeys
            return set[str]().union(*(self._find_keys(value, own, ()) for value in returned))
        finally:
            self._open.pop()

    def _find_keys(self, value: ast.expr, own: list[ast.AST], names: tuple[str, ...]) -> set[str]:
        match value:
            case ast.Dict(keys=keys, values=values):
                found: set[str] = set()
                for key, item in zip(keys, values, strict=True):
                    found |= self._find_keys(item, own, names) if key is None else {_read_constant(key)}
                return found
            case ast.Call(func=ast.Name(id="dict"), args=arguments, keywords=keywords):
                found = {keyword.arg for keyword in keywords if keyword.arg is not None}
                spread = [keyword.value for keyword in keywords if keyword.arg is None]
                for argument in (*arguments, *spread):
                    found |= self._find_keys(argument, own, names)
                return found
            case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                return self.find_function_keys(self._functions[name])
            case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, op=ast.BitOr(), right=second):
                return self._find_keys(first, own, names) | self._find_keys(second, own, names)
            case ast.Name(id=name) if name not in names:
                return self._find_variable_keys(name, own, (*names, name))
        raise _UnknownKeys

    def _find_variable_keys(self, name: str, own: list[ast.AST], names: tuple[str, ...]) -> set[str]:
        """Return the keys that the statements of a function put into a variable."""
        found: set[str] = set()
        assigned = False
        understood: set[int] = set()
        """Nodes of the variable in a statement that is understood; any other use may change it."""

        def expect(node: ast.AST) -> bool:
            if isinstance(node, ast.Name) and node.id == name:
                understood.add(id(node))
                return True
            return False

        for node in own:
            match node:
                case ast.Assign(targets=[target], value=value) if expect(target):
                    found |= self._find_keys(value, own, names)
                    assigned = True
                case ast.AnnAssign(target=target, value=ast.expr() as value) if expect(target):
                    found |= self._find_keys(value, own, names)
                    assigned = True
                case ast.AugAssign(target=target, op=ast.BitOr(), value=value) if expect(target):
                    found |= self._find_keys(value, own, names)
                case ast.Subscript(value=target, slice=key, ctx=ast.Store()) if expect(target):
                    found.add(_read_constant(key))
                case ast.Subscript(value=target, ctx=ast.Load()) if expect(target):
                    pass
                case ast.Call(
                    func=ast.Attribute(value=target, attr="update"), args=arguments, keywords=keywords
                ) if expect(target):
                    found |= {keyword.arg for keyword in keywords if keyword.arg is not None}
                    if any(keyword.arg is None for keyword in keywords):
                        raise _UnknownKeys
                    for argument in arguments:
                        found |= self._find_keys(argument, own, names)
                case ast.Return(value=ast.expr() as value):
                    expect(value)
                case ast.Dict(keys=keys, values=values):
                    for place, item in zip(keys, values, strict=True):
                        if place is None:
                            expect(item)
        used = {id(node) for node in own if isinstance(node, ast.Name) and node.id == name}
        if not assigned or used - understood:
            raise _UnknownKeys
        return found


def _read_constant(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _UnknownKeys


def _walk(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
