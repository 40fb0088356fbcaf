"""ChartQA: the chart, the question, and the relaxed accuracy of its paper."""

from __future__ import annotations

from typing import Any

TOLERANCE = 0.05
"""How far a number may be from the right one, as a share of the right one."""


def chartqa_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The chart."""
    return [doc["image"].convert("RGB")]


def chartqa_doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, str] | None = None) -> str:
    """The question between the texts of the task file."""
    around = lmms_eval_specific_kwargs or {}
    return f"{around.get('pre_prompt', '')}{doc['question']}{around.get('post_prompt', '')}"


def chartqa_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Right or wrong, once over all questions and once in the half the question belongs to."""
    score = float(is_relaxed_match(results[0], doc["answer"]))
    half = "relaxed_human_split" if doc["type"] == "human_test" else "relaxed_augmented_split"
    return {"relaxed_overall": score, half: score}


def is_relaxed_match(answer: str, target: str) -> bool:
    """Numbers within the tolerance; all else, and a target of zero, by the letters alone.

    >>> is_relaxed_match("104", "100"), is_relaxed_match("106", "100"), is_relaxed_match("50%", "0.5")
    (True, False, True)
    """
    given, wanted = as_number(answer), as_number(target)
    if given is None or not wanted:
        return answer.lower() == target.lower()
    return abs(given - wanted) / abs(wanted) <= TOLERANCE


def as_number(text: str) -> float | None:
    """The number a text is, per cent as hundredths; None when it is none."""
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None
