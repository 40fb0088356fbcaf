"""Compile the fields of a task file (`doc_to_text`, `doc_to_target`, `doc_to_choice`, …) to functions of a document.

The compiler decides once whether a string is a column, a constant or a template. The rules are those of lm_eval: a
string that names a column of the evaluated split is the value of that column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from assay.core.errors import TaskError
from assay.core.python_syntax import evaluate_literal
from assay.core.records.specs import FieldSpec
from assay.tasks.data.media_columns import MediaRow
from assay.tasks.prompts.templates import compile_template

__all__ = [
    "TEMPLATE_MARKUP",
    "compile_choices",
    "compile_field",
    "compile_media",
    "compile_target",
    "compile_text",
    "copy_fields",
    "find_unrendered_template",
]

Fields = Mapping[str, Any]
FieldFunction = Callable[[Fields], Any]

TEMPLATE_MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
"""Matches template markup."""


def copy_fields(fields: Fields) -> dict[str, Any]:
    """Copy a document for task code, which may change it: the row and its direct lists and mappings.

    >>> row = {"choices": [1, 2]}
    >>> copy_fields(row)["choices"].append(3)
    >>> row
    {'choices': [1, 2]}
    """
    if type(fields) is MediaRow:
        return fields.copy_row()
    return {
        key: list(value) if type(value) is list else dict(value) if type(value) is dict else value
        for key, value in fields.items()
    }


def compile_text(
    source: FieldSpec, columns: Collection[str], *, has_choices: bool, where: str = ""
) -> FieldFunction:
    """Compile `doc_to_text`. An integer result means that the text is one of the choices."""
    if isinstance(source, str):
        if source in columns:
            return _compile_column(source, where)
        render = compile_template(source, where=where)
        if not has_choices:
            return render

        def text_or_index(fields: Fields) -> str | int:
            text = render(fields)
            return int(text) if _is_index(text) else text

        return text_or_index
    return _compile_constant(source, "doc_to_text", where)


def compile_target(
    source: FieldSpec, columns: Collection[str], *, has_choices: bool, where: str = ""
) -> FieldFunction:
    """Compile `doc_to_target`. Digits are an index if the task has choices. `[…]` is parsed as a list."""
    if isinstance(source, str):
        if source in columns:
            return _compile_column(source, where)
        render = compile_template(source, where=where)

        def target(fields: Fields) -> Any:
            text = render(fields)
            if has_choices and _is_index(text):
                return int(text)
            if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
                try:
                    return evaluate_literal(text)
                except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
                    return text
            return text

        return target
    if isinstance(source, list):
        return lambda fields: source
    return _compile_constant(source, "doc_to_target", where)


def compile_choices(source: FieldSpec, columns: Collection[str], *, where: str = "") -> FieldFunction:
    """Compile `doc_to_choice`: a list, the values of a mapping, a column, or a template that renders a list."""
    if isinstance(source, str):
        return _compile_column(source, where) if source in columns else _compile_list(source, where)
    if isinstance(source, Mapping):
        values = list(source.values())
        return lambda fields: values
    if isinstance(source, Sequence):
        return lambda fields: source
    return _compile_constant(source, "doc_to_choice", where)


def find_unrendered_template(choices: Any) -> str | None:
    """Return the first entry of a list of choices that looks like a template. As in lm_eval, entries are not rendered.

    >>> find_unrendered_template(["yes", "{{no}}"]), find_unrendered_template("{{choices}}")
    ('{{no}}', None)
    """
    listed = (
        choices.values() if isinstance(choices, Mapping) else choices if isinstance(choices, list) else ()
    )
    return next((one for one in listed if isinstance(one, str) and TEMPLATE_MARKUP.search(one)), None)


def compile_media(source: FieldSpec, columns: Collection[str], *, where: str = "") -> FieldFunction:
    """Compile `doc_to_image` or `doc_to_audio`: a column, a function or a list of those. None values are dropped."""
    if isinstance(source, str):
        return _compile_column(source, where) if source in columns else _compile_literal(source, where)
    if isinstance(source, Sequence):
        parts = [compile_media(part, columns, where=where) for part in source]
        return lambda fields: [value for value in (part(fields) for part in parts) if value is not None]
    return _compile_constant(source, "media", where)


def compile_field(template: FieldSpec, *, where: str = "") -> FieldFunction:
    """Compile `description` or `gen_prefix`: a key of the document, or a template."""
    if template is None or template == "":
        return lambda fields: template
    if callable(template):
        return template
    text = str(template)
    render = compile_template(text, where=where)
    return lambda fields: fields[text] if text in fields else render(fields)


def _is_index(text: str) -> bool:
    """Return whether a text consists of ASCII digits. `str.isdigit` alone accepts `²`."""
    return text.isascii() and text.isdigit()


def _compile_column(name: str, where: str) -> FieldFunction:
    def column(fields: Fields) -> Any:
        try:
            return fields[name]
        except KeyError:
            raise TaskError(
                f"the document has no column `{name}`", where=where, hint=f"columns: {', '.join(fields)}"
            ) from None

    return column


def _compile_literal(template: str, where: str) -> FieldFunction:
    render = compile_template(template, where=where)

    def literal(fields: Fields) -> Any:
        text = render(fields)
        try:
            return evaluate_literal(text)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            raise TaskError(
                f"the template must render a list, not `{text[:60]}`",
                where=where,
                hint="for example {{[a, b, c]}}",
            ) from None

    return literal


def _compile_list(template: str, where: str) -> FieldFunction:
    literal = _compile_literal(template, where)

    def choices(fields: Fields) -> Any:
        value = literal(fields)
        if not isinstance(value, (list, tuple)):
            raise TaskError(
                f"the template must render a list, not `{value!r:.60}`",
                where=where,
                hint="for example {{[a, b, c]}}",
            )
        return list(value)

    return choices


def _compile_constant(source: Any, key: str, where: str) -> FieldFunction:
    if callable(source):
        return source  # type: ignore[no-any-return]
    if isinstance(source, int):
        return lambda fields: source
    raise TaskError(f"`{key}` must be a template, a column or a function, not {source!r}", where=where)
