"""SEED-Bench by likelihood: pictures, question, four choices."""

from __future__ import annotations

from typing import Any

LETTERS = "ABCD"


def seed_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The picture, or the frames of the video, in order."""
    return [picture.convert("RGB") for picture in doc["image"]]


def seed_doc_to_text(doc: dict[str, Any]) -> str:
    """The question, ready to be continued by an answer."""
    return f"{doc['question']} Answer :"


def seed_doc_to_choice(doc: dict[str, Any]) -> list[str]:
    """The four answers, in the order of their letters."""
    return [doc[f"choice_{letter.lower()}"] for letter in LETTERS]


def seed_doc_to_target(doc: dict[str, Any]) -> int:
    """The place of the right answer among the choices."""
    return LETTERS.index(doc["answer"])
