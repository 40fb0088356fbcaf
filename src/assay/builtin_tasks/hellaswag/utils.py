"""HellaSwag: scenes and endings without the marks that WikiHow's pages left in them."""

from __future__ import annotations

import re
from typing import Any

_MARK = re.compile(r"\[.*?\]")


def readable_documents(documents: Any) -> Any:
    """Every document with `query` (what it is about, and the scene), `choices` and `gold`."""
    return documents.map(_with_prompt)


def _with_prompt(document: dict[str, Any]) -> dict[str, Any]:
    scene = f"{document['ctx_a']} {document['ctx_b'].capitalize()}"
    return {
        "query": readable(f"{document['activity_label']}: {scene}"),
        "choices": [readable(ending) for ending in document["endings"]],
        "gold": int(document["label"]),
    }


def readable(text: str) -> str:
    """A text without marks in square brackets; a title becomes the end of a sentence.

    >>> readable("[header] How to bake [title] Mix the flour. [step] Stir  well.")
    ' How to bake. Mix the flour. Stir well.'
    """
    return _MARK.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")
