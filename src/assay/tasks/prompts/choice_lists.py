"""The choices of a document for templates: `choice_texts`, `choice_letters` and `choice_list`.

A task with `choice_column` can write its prompt without letters of its own, so that variants can change order and letters:

    choice_column: choices
    doc_to_text: "{{question}}\\n{{choice_list}}\\nAnswer:"
    doc_to_choice: "{{choice_letters}}"
    doc_to_target: answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from assay.core.errors import TaskError

__all__ = ["CHOICE_VARIABLES", "add_choice_variables"]

CHOICE_VARIABLES = ("choice_texts", "choice_letters", "choice_list")

Fields = Mapping[str, Any]


def add_choice_variables(
    render: Callable[[Fields], Any], column: str, letters: Sequence[str], *, where: str
) -> Callable[[Fields], Any]:
    """Return a function that renders a template with the choices in a column, which can name a key: `choices.text`.

    >>> render = add_choice_variables(lambda fields: fields["choice_list"], "options", (), where="")
    >>> render({"options": ["red", "blue"]})
    'A. red\\nB. blue'
    """
    known = tuple(letters) or tuple(ascii_uppercase)

    def render_with_choices(fields: Fields) -> Any:
        texts: Any = fields
        for key in column.split("."):
            texts = texts.get(key) if isinstance(texts, Mapping) else None
        if not isinstance(texts, (list, tuple)) or not texts:
            raise TaskError(
                f"the document has no list `{column}`",
                where=where,
                hint=f"columns: {', '.join(map(str, fields))}",
            )
        if len(texts) > len(known):
            raise TaskError(
                f"the document has {len(texts)} choices, but there are {len(known)} letters", where=where
            )
        shown = list(known[: len(texts)])
        listed = "\n".join(f"{letter}. {text}" for letter, text in zip(shown, texts, strict=True))
        return render({**fields, "choice_texts": list(texts), "choice_letters": shown, "choice_list": listed})

    return render_with_choices
