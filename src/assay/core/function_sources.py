"""Save functions of a notebook or script as Python source: with the names they use, so that another process can run them.

A function of an installed package is saved as an import. A function that uses an object without source code, such as an
open connection, is not saved; its source still identifies it.
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.util
import inspect
import linecache
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from assay.core.fingerprints import digest_text
from assay.core.python_syntax import evaluate_literal, parse_python

__all__ = ["SourceFile", "digest_function", "read_function_source"]

_MAX_LITERAL_LENGTH = 100_000
_HEADER = '"""Functions of a task that was defined in Python."""\n\nfrom __future__ import annotations\n'


class SourceUnavailable(Exception):
    """The reason why a value cannot be saved as source."""


class SourceFile:
    """Collects functions and everything they use in the text of one Python module.

    >>> file = SourceFile()
    >>> file.add("shout", str.upper)
    >>> print(file.render().splitlines()[-1])
    shout = str.upper
    """

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}
        self._definitions: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self.unsaved: dict[str, str] = {}
        """The functions that cannot be saved, with the reason."""

        self._comments: dict[str, str] = {}

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Add a function under a name. If it cannot be saved, its source is added as a comment."""
        snapshot = dict(self._imports), dict(self._definitions), dict(self._values)
        try:
            if owner := _find_builtin_owner(function):
                self._define(name, function, f"{name} = {owner}.{function.__name__}")
                return
            if not isinstance(function, (FunctionType, type)) and _find_installed(function) is None:
                raise SourceUnavailable(f"it is a {type(function).__name__} object")
            own = getattr(function, "__name__", "")
            self._add_value(own if own.isidentifier() and own != "<lambda>" else name, function)
            if own != name and own.isidentifier():
                self._define(name, function, f"{name} = {own}")
        except SourceUnavailable as reason:
            self._imports, self._definitions, self._values = snapshot
            self.unsaved[name] = str(reason)
            self._comments[name] = read_function_source(function)

    def render(self) -> str:
        """Return the text of the module."""
        parts = [_HEADER, *sorted(self._imports.values())]
        parts += [f"\n{text}" for text in self._definitions.values()]
        for name, source in self._comments.items():
            comment = "\n".join(f"# {line}".rstrip() for line in source.splitlines())
            parts.append(f"\n# `{name}` is not saved: {self.unsaved[name]}\n{comment}")
        if self.unsaved:
            parts.append(_UNSAVED_TEMPLATE.format(reasons=repr(self.unsaved)))
        return "\n".join(parts) + "\n"

    def _add_value(self, name: str, value: Any) -> None:
        """Add a value under the name that a function uses for it."""
        if name in self._values:
            if self._values[name] is not value and not _is_equal(self._values[name], value):
                raise SourceUnavailable(f"two functions use different values of `{name}`")
            return
        self._values[name] = value
        if isinstance(value, ModuleType):
            self._imports[name] = _format_module_import(name, value)
        elif (found := _find_installed(value)) is not None:
            module, attribute = found
            self._imports[name] = f"from {module} import {attribute}" + (
                f" as {name}" if name != attribute else ""
            )
        elif isinstance(value, FunctionType):
            self._add_function(name, value)
        elif isinstance(value, type):
            self._add_class(name, value)
        elif isinstance(value, re.Pattern):
            self._imports["re"] = "import re"
            self._definitions[name] = f"{name} = re.compile({value.pattern!r}, {int(value.flags)})"
        elif (text := _format_literal(value)) is not None:
            self._definitions[name] = f"{name} = {text}"
        else:
            raise SourceUnavailable(f"it uses `{name}`, a {type(value).__name__} object")

    def _add_function(self, name: str, function: FunctionType) -> None:
        source, node = _find_definition(function)
        for used, value in _iterate_used_values(function, node):
            if value is not function:
                self._add_value(used, value)
        text = f"{name} = {source}" if isinstance(node, ast.Lambda) else source
        self._definitions[name] = text

    def _add_class(self, name: str, value: type) -> None:
        try:
            source = textwrap.dedent(inspect.getsource(value))
            node = parse_python(source).body[0]
        except (OSError, TypeError, SyntaxError, IndexError):
            raise SourceUnavailable(f"the source of the class `{name}` is not available") from None
        for base in value.__bases__:
            if base is not object:
                self._add_value(base.__name__, base)
        for member in vars(value).values():
            function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
            if isinstance(function, FunctionType):
                for used, item in _iterate_used_values(function, node):
                    if item is not value:
                        self._add_value(used, item)
        self._definitions[name] = source.rstrip()

    def _define(self, name: str, value: Any, text: str) -> None:
        if name in self._values:
            raise SourceUnavailable(f"two functions are called `{name}`")
        self._values[name] = value
        self._definitions[name] = text


_UNSAVED_TEMPLATE = """

def __getattr__(name: str) -> object:
    from assay.core.errors import TaskError

    reasons = {reasons}
    if name not in reasons:
        raise AttributeError(name)
    raise TaskError(
        f"the function `{{name}}` is not saved with the run: {{reasons[name]}}",
        hint="pass the task again: assay.resume(run, tasks=[task])",
    )
"""


def read_function_source(function: Callable[..., Any]) -> str:
    """Return the source of a function; a description of its code if the source is not available."""
    plain = inspect.unwrap(function)
    if isinstance(plain, FunctionType):
        try:
            return _find_definition(plain)[0]
        except SourceUnavailable:
            return _describe_code(plain.__code__)
    plain = getattr(plain, "func", plain)  # functools.partial
    kind = type(plain)
    name = f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', kind.__qualname__)}"
    if isinstance(plain, FunctionType):
        return f"{name}\n{read_function_source(plain)}"
    try:
        return f"{name}\n{textwrap.dedent(inspect.getsource(kind))}"
    except (OSError, TypeError):
        return name


def digest_function(function: Callable[..., Any]) -> str:
    """Return a hash of the source of a function and of the functions and values that it uses.

    >>> digest_function(len) == digest_function(len)
    True
    """
    file = SourceFile()
    file.add("function", function)
    return digest_text(file.render())


def _describe_code(code: CodeType) -> str:
    inner = [_describe_code(one) for one in code.co_consts if isinstance(one, CodeType)]
    plain = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return " ".join([code.co_name, code.co_code.hex(), *code.co_names, *plain, *inner])


def _find_definition(function: FunctionType) -> tuple[str, ast.AST]:
    """Return the source of a function or lambda and its syntax tree."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    try:
        tree = parse_python("".join(lines))
    except (SyntaxError, ValueError):
        raise SourceUnavailable("its source is not available") from None
    if code.co_name == "<lambda>":
        found: list[Any] = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno
        ]
        if len(found) > 1:
            found = [node for node in found if _is_same_code(node, code)]
            if len({ast.dump(node) for node in found}) > 1:
                raise SourceUnavailable("several lambdas on its line look alike")
    else:
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name == code.co_name
            and code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list))
        ]
    if not found:
        raise SourceUnavailable("its source is not available")
    node = found[0]
    if isinstance(node, ast.Lambda):
        segment = ast.get_source_segment("".join(lines), node) or ""
        return (f"({segment})" if "\n" in segment else segment), node
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip(), node


def _is_same_code(node: ast.Lambda, code: CodeType) -> bool:
    made = compile(ast.fix_missing_locations(ast.Expression(node)), "<lambda>", "eval")
    inner = next((one for one in made.co_consts if isinstance(one, CodeType)), None)
    return (
        inner is not None
        and inner.co_varnames == code.co_varnames
        and [one for one in inner.co_consts if not isinstance(one, CodeType)]
        == [one for one in code.co_consts if not isinstance(one, CodeType)]
        and (*inner.co_names, *inner.co_freevars) == (*code.co_names, *code.co_freevars)
        and (bool(code.co_freevars) or inner.co_code == code.co_code)
    )


def _iterate_used_values(function: FunctionType, node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the globals and the variables of outer functions that a function uses, by name."""
    outer = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    names = dict.fromkeys((*_iterate_global_names(function.__code__), *_iterate_header_names(node)))
    known: Mapping[str, Any] = {**function.__globals__, **outer}
    for name in (*names, *(name for name in outer if name not in names)):
        if name in known and name not in ("__name__", "__file__", "__doc__"):
            yield name, known[name]


def _iterate_global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _iterate_global_names(inner)


def _iterate_header_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in decorators and default values, which are evaluated with the definition."""
    headers: list[ast.AST] = list(getattr(node, "decorator_list", ()))
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        headers += [one for one in (*arguments.defaults, *arguments.kw_defaults) if one is not None]
    for header in headers:
        for one in ast.walk(header):
            if isinstance(one, ast.Name):
                yield one.id


def _format_module_import(name: str, module: ModuleType) -> str:
    path = module.__name__
    if path == "__main__" or importlib.util.find_spec(path.partition(".")[0]) is None:
        raise SourceUnavailable(f"it uses the module `{name}`, which cannot be imported")
    return f"import {path}" if path == name else f"import {path} as {name}"


def _find_installed(value: Any) -> tuple[str, str] | None:
    """Return (module, name) of a function or class of an installed package; None for the user's own code."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or not isinstance(name, str) or not name or "." in name:
        return None
    loaded = sys.modules.get(module)
    if loaded is None or getattr(loaded, name, None) is not value:
        return None
    file = getattr(loaded, "__file__", None)
    if file is None:
        return None if module == "__main__" else (module, name)
    places = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = Path(__file__).resolve().parents[1]
    path = Path(file).resolve()
    is_installed = any(path.is_relative_to(Path(place).resolve()) for place in places)
    return (module, name) if is_installed or path.is_relative_to(own) else None


def _find_builtin_owner(function: Any) -> str:
    """Return the name of the built-in class of a method such as `str.strip`; an empty text for other functions."""
    name = str(getattr(getattr(function, "__objclass__", None), "__name__", ""))
    is_builtin = name and getattr(builtins, name, None) is getattr(function, "__objclass__", None)
    return name if is_builtin else ""


def _format_literal(value: Any) -> str | None:
    """Return a value as Python source; None if it has none."""
    text = repr(value)
    if len(text) > _MAX_LITERAL_LENGTH:
        return None
    try:
        return text if _is_equal(evaluate_literal(text), value) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except (TypeError, ValueError):  # arrays have no truth value
        return False
