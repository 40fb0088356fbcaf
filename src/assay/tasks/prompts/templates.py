"""Compile Jinja templates once and render them in Jinja's sandbox.

Task files define the templates and datasets fill them, so both are untrusted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.core.errors import TaskError
from assay.tasks.data.media_columns import MediaRow

__all__ = ["compile_template", "find_template_names"]


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _regex_replace
    return environment


@lru_cache(maxsize=4096)
def _compile(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def compile_template(source: str, *, where: str = "") -> Callable[[Mapping[str, Any]], str]:
    """Compile a template to a function from a document's fields to text. A text without markup is constant.

    >>> compile_template("{{question}}?")({"question": "Why"})
    'Why?'

    Raises:
        TaskError: The template is not valid Jinja. The returned function raises it if a field is missing.
    """
    try:
        template = _compile(source)
    except jinja2.TemplateSyntaxError as error:
        raise TaskError(
            f"invalid template: {error.message}", where=where, hint=_excerpt(source, error.lineno)
        ) from None
    except (
        SyntaxError,
        RecursionError,
        MemoryError,
        ValueError,
        OverflowError,
    ) as error:  # nested too deeply
        raise TaskError(f"invalid template: {error}", where=where, hint=_excerpt(source)) from None
    if "{{" not in source and "{%" not in source and "{#" not in source:
        constant = template.render()
        return lambda fields: constant
    root, join = template.root_render_func, "".join
    environment, name, blocks = template.environment, template.name, template.blocks
    context_class, shared = environment.context_class, dict(template.globals)

    def render(fields: Mapping[str, Any]) -> str:
        try:
            known = fields.with_defaults(shared) if type(fields) is MediaRow else {**shared, **fields}
            return join(root(context_class(environment, known, name, blocks)))
        except jinja2.UndefinedError as error:
            raise _missing_field_error(error, source, fields, where) from None
        except jinja2.TemplateError as error:
            raise TaskError(
                f"the template fails: {error.message}", where=where, hint=_excerpt(source)
            ) from None
        except (
            TypeError,
            ValueError,
            ZeroDivisionError,
            IndexError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
            MemoryError,
            re.error,
        ) as error:
            raise TaskError(
                f"the template fails: {type(error).__name__}: {error}", where=where, hint=_excerpt(source)
            ) from None

    shortcut = _compile_shortcut(source)
    return render if shortcut is None else _with_shortcut(shortcut, render)


def _with_shortcut(
    shortcut: Callable[[Mapping[str, Any]], str], render: Callable[[Mapping[str, Any]], str]
) -> Callable[[Mapping[str, Any]], str]:
    def render_fast(fields: Mapping[str, Any]) -> str:
        try:
            return shortcut(fields)
        except (KeyError, TypeError, IndexError, AttributeError):
            return render(fields)  # the full template works, or raises the right error

    return render_fast


def _compile_shortcut(source: str) -> Callable[[Mapping[str, Any]], str] | None:
    """Compile a template that only inserts fields to an f-string. Return None for other templates.

    Most templates insert fields, items with a constant key, and `strip()` calls. The f-string raises an error for a
    missing field or a value of the wrong type, and the caller renders the full template instead.
    """
    body = _environment().parse(source).body
    if any(not isinstance(node, nodes.Output) for node in body):
        return None
    parts = [_compile_node(child) for node in body for child in node.nodes]  # type: ignore[attr-defined]
    if any(part is None for part in parts):
        return None
    text = ast.JoinedStr([part for part in parts if part is not None])
    fields = ast.arguments(
        posonlyargs=[], args=[ast.arg("fields")], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(fields, text)))
    shortcut: Callable[[Mapping[str, Any]], str] = eval(
        compile(function, "<template>", "eval"), {"stripped": _strip_text}
    )
    return shortcut


def _compile_node(node: nodes.Node) -> ast.expr | None:
    """Return the f-string part for a template node, or None if there is none."""
    match node:
        case nodes.TemplateData(data=text):
            return ast.Constant(text)
        case nodes.Name(name=name) if name not in _environment().globals:
            return _format_expression(_field_expression(name))
        case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=int() | str() as key)) if (
            name not in _environment().globals
        ):
            return _format_expression(ast.Subscript(_field_expression(name), ast.Constant(key), ast.Load()))
        case nodes.Call(
            node=nodes.Getattr(node=nodes.Name(name=name), attr="strip"), args=[], kwargs=[], dyn_args=None
        ):
            return _format_expression(
                ast.Call(ast.Name("stripped", ast.Load()), [_field_expression(name)], [])
            )
    return None


def _field_expression(name: str) -> ast.expr:
    return ast.Subscript(ast.Name("fields", ast.Load()), ast.Constant(name), ast.Load())


def _format_expression(value: ast.expr) -> ast.expr:
    return ast.FormattedValue(value, conversion=ord("s"))


def _strip_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value.strip()


def find_template_names(source: str) -> set[str]:
    """Return the names of the document fields that a template uses."""
    from jinja2 import meta

    return meta.find_undeclared_variables(_environment().parse(source))


def _missing_field_error(
    error: jinja2.UndefinedError, source: str, fields: Mapping[str, Any], where: str
) -> TaskError:
    absent = sorted(name for name in find_template_names(source) if name not in fields)
    columns = ", ".join(str(name) for name in fields) or "none"
    if not absent:
        return TaskError(f"the template fails: {error.message}", where=where, hint=f"columns: {columns}")
    close = get_close_matches(absent[0], [str(name) for name in fields], n=1)
    guess = f"did you mean `{close[0]}`? " if close else ""
    return TaskError(
        f"the template uses `{absent[0]}`, which the document does not have",
        where=where,
        hint=f"{guess}columns: {columns}",
    )


def _excerpt(source: str, line: int | None = None) -> str:
    lines = source.splitlines() or [""]
    text = lines[min(line or 1, len(lines)) - 1].strip()
    return f"in `{text[:80]}{'…' if len(text) > 80 else ''}`"
