"""MMMU: questions with pictures in the middle of the text."""

from __future__ import annotations

import ast
import re
from typing import Any

Options = dict[str, Any] | None

_PICTURE = re.compile(r"<image (\d+)>")


def mmmu_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The pictures the question or its choices name, each once, in the order of their numbers."""
    numbers = sorted({int(number) for number in _PICTURE.findall(_plain_text(doc))})
    return [doc[f"image_{number}"].convert("RGB") for number in numbers]


def mmmu_doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: Options = None) -> str:
    """The question, its choices, and how to answer. Pictures stay as the dataset writes them: `<image 1>`."""
    wishes = lmms_eval_specific_kwargs or {}
    if wishes.get("format") == "qwen3_vl":
        wish = wishes["post_prompt"] if _has_choices(doc) else wishes["open_ended_prompt"]
        return f"{wishes['pre_prompt']}{doc['question']}\nOptions:\n{_choices(doc)}\n{wish}"
    return _plain_text(doc, wishes.get("multiple_choice_prompt", ""), wishes.get("open_ended_prompt", ""))


def mmmu_doc_to_messages(
    doc: dict[str, Any], lmms_eval_specific_kwargs: Options = None
) -> list[dict[str, Any]]:
    """One user message with every picture at the place where the text names it."""
    text = mmmu_doc_to_text(doc, lmms_eval_specific_kwargs)
    if (lmms_eval_specific_kwargs or {}).get("format") == "qwen3_vl":
        content = [{"type": "image", "url": one} for one in mmmu_doc_to_visual(doc)]
        return [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    content = []
    *pieces, last = _PICTURE.split(text)  # text, number, text, number, …, text
    for before, number in zip(pieces[::2], pieces[1::2], strict=True):
        if before.strip():
            content.append({"type": "text", "text": before.strip()})
        content.append({"type": "image", "url": doc[f"image_{number}"].convert("RGB")})
    content.append({"type": "text", "text": last.strip()})
    return [{"role": "user", "content": content}]


def _plain_text(doc: dict[str, Any], choice_wish: str = "", open_wish: str = "") -> str:
    if _has_choices(doc):
        return f"{doc['question']}\n{_choices(doc)}\n\n{choice_wish}"
    return f"{doc['question']}\n\n{open_wish}"


def _has_choices(doc: dict[str, Any]) -> bool:
    return bool(doc["question_type"] == "multiple-choice")


def _choices(doc: dict[str, Any]) -> str:
    """The dataset keeps the list of choices as the text of a Python list."""
    options = ast.literal_eval(doc["options"])
    return "\n".join(f"{chr(ord('A') + at)}. {option}" for at, option in enumerate(options))
