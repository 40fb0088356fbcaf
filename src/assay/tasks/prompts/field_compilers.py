"""How a document becomes a text, a target, a list of choices, media: one compiled function per YAML key.

Whether a string is a column, a constant or a template is decided once, not per document. The rules are
lm-evaluation-harness's: a string that names a column of the evaluated split is that column's value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from assay.core.errors import TaskError
from assay.core.specs import FieldSpec
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
Make = Callable[[Fields], Any]

TEMPLATE_MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
"""What a template is recognised by."""


def copy_fields(fields: Fields) -> dict[str, Any]:
    """A copy that helper code may scribble on: the row and the lists and mappings directly in it.

    >>> row = {"choices": [1, 2]}
    >>> loan(row)["choices"].append(3)
    >>> row
    {'choices': [1, 2]}
    """
    if type(fields) is MediaRow:
        return fields.copy_row()
    return {
        key: list(value) if type(value) is list else dict(value) if type(value) is dict else value
        for key, value in fields.items()
    }


def compile_text(maker: FieldSpec, columns: Collection[str], *, has_choices: bool, where: str = "") -> Make:
    """`doc_to_text`: an integer answer means the text is one of the choices."""
    if isinstance(maker, str):
        if maker in columns:
            return _column(maker, where)
        render = compile_template(maker, where=where)
        if not has_choices:
            return render

        def text_or_index(fields: Fields) -> str | int:
            text = render(fields)
            return int(text) if _is_index(text) else text

        return text_or_index
    return _plain(maker, "doc_to_text", where)


def compile_target(maker: FieldSpec, columns: Collection[str], *, has_choices: bool, where: str = "") -> Make:
    """`doc_to_target`: digits are an index where there are choices; `[…]` is read as a list."""
    if isinstance(maker, str):
        if maker in columns:
            return _column(maker, where)
        render = compile_template(maker, where=where)

        def target(fields: Fields) -> Any:
            text = render(fields)
            if has_choices and _is_index(text):
                return int(text)
            if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
                try:
                    return ast.literal_eval(text)
                except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
                    return text
            return text

        return target
    if isinstance(maker, list):
        return lambda fields: maker
    return _plain(maker, "doc_to_target", where)


def compile_choices(maker: FieldSpec, columns: Collection[str], *, where: str = "") -> Make:
    """`doc_to_choice`: a list, a mapping's values, a column, or a template that writes a list."""
    if isinstance(maker, str):
        return _column(maker, where) if maker in columns else _written_list(maker, where)
    if isinstance(maker, Mapping):
        values = list(maker.values())
        return lambda fields: values
    if isinstance(maker, Sequence):
        return lambda fields: maker
    return _plain(maker, "doc_to_choice", where)


def find_unrendered_template(choices: Any) -> str | None:
    """The first choice of a list or mapping that is written like a template. Only a single text is one, as in lm-eval.

    >>> find_unrendered_template(["yes", "{{no}}"]), find_unrendered_template("{{choices}}")
    ('{{no}}', None)
    """
    listed = (
        choices.values() if isinstance(choices, Mapping) else choices if isinstance(choices, list) else ()
    )
    return next((one for one in listed if isinstance(one, str) and TEMPLATE_MARKUP.search(one)), None)


def compile_media(maker: FieldSpec, columns: Collection[str], *, where: str = "") -> Make:
    """`doc_to_image` and `doc_to_audio`: a column, a function, a list of those; None entries are dropped."""
    if isinstance(maker, str):
        return _column(maker, where) if maker in columns else _literal(maker, where)
    if isinstance(maker, Sequence):
        parts = [compile_media(part, columns, where=where) for part in maker]
        return lambda fields: [value for value in (part(fields) for part in parts) if value is not None]
    return _plain(maker, "media", where)


def compile_field(template: FieldSpec, *, where: str = "") -> Make:
    """`description` and `gen_prefix`: a key of this very document, else a template."""
    if template is None or template == "":
        return lambda fields: template
    if callable(template):
        return template
    text = str(template)
    render = compile_template(text, where=where)
    return lambda fields: fields[text] if text in fields else render(fields)


def _is_index(text: str) -> bool:
    """Whether a text is a whole number as a program writes it; `²` is a digit too, but none of those."""
    return text.isascii() and text.isdigit()


def _column(name: str, where: str) -> Make:
    def column(fields: Fields) -> Any:
        try:
            return fields[name]
        except KeyError:
            raise TaskError(
                f"the document has no column `{name}`", where=where, hint=f"columns: {', '.join(fields)}"
            ) from None

    return column


def _literal(template: str, where: str) -> Make:
    render = compile_template(template, where=where)

    def literal(fields: Fields) -> Any:
        text = render(fields)
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            raise TaskError(
                f"the template must write a list, but wrote `{text[:60]}`",
                where=where,
                hint="for instance {{[a, b, c]}}",
            ) from None

    return literal


def _written_list(template: str, where: str) -> Make:
    literal = _literal(template, where)

    def choices(fields: Fields) -> Any:
        value = literal(fields)
        if not isinstance(value, (list, tuple)):
            raise TaskError(
                f"the template must write a list, but wrote `{value!r:.60}`",
                where=where,
                hint="for instance {{[a, b, c]}}",
            )
        return list(value)

    return choices


def _plain(maker: Any, key: str, where: str) -> Make:
    if callable(maker):
        return maker  # type: ignore[no-any-return]
    if isinstance(maker, int):
        return lambda fields: maker
    raise TaskError(f"`{key}` must be a template, a column or a function, not {maker!r}", where=where)
