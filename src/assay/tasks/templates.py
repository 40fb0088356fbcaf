"""Jinja templates, compiled once and rendered in a sandbox.

Templates come from task files and dataset texts flow through them, so both are treated as hostile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.core.errors import BadTask

__all__ = ["compile_template", "template_names"]


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _regex_replace
    return environment


@lru_cache(maxsize=4096)
def _compiled(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def compile_template(source: str, *, where: str = "") -> Callable[[Mapping[str, Any]], str]:
    """A function from a document's fields to text. A text without markup is rendered once and for all.

    >>> compile_template("{{question}}?")({"question": "Why"})
    'Why?'

    Raises:
        BadTask: The template is not valid Jinja; on rendering, a field it names is missing.
    """
    try:
        template = _compiled(source)
    except jinja2.TemplateSyntaxError as error:
        raise BadTask(
            f"not a valid template: {error.message}", where=where, hint=_excerpt(source, error.lineno)
        ) from None
    if "{{" not in source and "{%" not in source and "{#" not in source:
        constant = template.render()
        return lambda fields: constant
    new_context, root, join = template.new_context, template.root_render_func, "".join

    def render(fields: Mapping[str, Any]) -> str:
        try:
            return join(root(new_context(dict(fields))))
        except jinja2.UndefinedError as error:
            raise _missing(error, source, fields, where) from None
        except jinja2.TemplateError as error:
            raise BadTask(
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
        ) as error:
            raise BadTask(
                f"the template fails: {type(error).__name__}: {error}", where=where, hint=_excerpt(source)
            ) from None

    return render


def template_names(source: str) -> set[str]:
    """The names a template takes from the document."""
    from jinja2 import meta

    return meta.find_undeclared_variables(_environment().parse(source))


def _missing(error: jinja2.UndefinedError, source: str, fields: Mapping[str, Any], where: str) -> BadTask:
    absent = sorted(name for name in template_names(source) if name not in fields)
    columns = ", ".join(str(name) for name in fields) or "none"
    if not absent:
        return BadTask(f"the template fails: {error.message}", where=where, hint=f"columns: {columns}")
    close = get_close_matches(absent[0], [str(name) for name in fields], n=1)
    guess = f"did you mean `{close[0]}`? " if close else ""
    return BadTask(
        f"the template names `{absent[0]}`, which the document does not have",
        where=where,
        hint=f"{guess}columns: {columns}",
    )


def _excerpt(source: str, line: int | None = None) -> str:
    lines = source.splitlines() or [""]
    text = lines[min(line or 1, len(lines)) - 1].strip()
    return f"in `{text[:80]}{'…' if len(text) > 80 else ''}`"
