"""What the picture task cannot say in YAML. Each function is named there with `!function utils.<name>`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

DATA = Path(__file__).parent / "data"


def shapes_doc_to_visual(doc: dict[str, Any]) -> list[Image.Image]:
    """The pictures of one document. Paths in the data are relative to the data folder."""
    with Image.open(DATA / doc["image"]) as picture:
        return [picture.convert("RGB")]


def shapes_doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, str] | None = None) -> str:
    """The question, between the texts that the YAML puts around it."""
    around = lmms_eval_specific_kwargs or {}
    return f"{around.get('pre_prompt', '')}{doc['question']}{around.get('post_prompt', '')}"


def shapes_doc_to_messages(
    doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """One user message: the picture, then the question."""
    content: list[dict[str, Any]] = [
        {"type": "image", "url": picture} for picture in shapes_doc_to_visual(doc)
    ]
    content.append({"type": "text", "text": shapes_doc_to_text(doc, lmms_eval_specific_kwargs)})
    return [{"role": "user", "content": content}]


def shapes_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Score one document: right or wrong and, where it asks for a number, how far the answer is from it.

    A metric that is left out for a document does not count there.
    """
    answer = results[0].strip().lower().rstrip(".")
    scores = {"exact_match": float(answer == doc["answer"])}
    if doc["kind"] == "count" and answer.isdigit():
        scores["count_error"] = float(abs(int(answer) - int(doc["answer"])))
    return scores
