"""MME: yes-or-no questions in pairs, and the score that rewards pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

PERCEPTION = frozenset("existence count position color posters celebrity scene landmark artwork OCR".split())
COGNITION = frozenset("commonsense_reasoning numerical_calculation text_translation code_reasoning".split())
REQUEST = " Please answer yes or no."
"""How every question of the dataset ends; a prompt with a wish of its own replaces it."""


def mme_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The picture."""
    return [doc["image"].convert("RGB")]


def mme_doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, str] | None = None) -> str:
    """The question between the texts of the task file; as the dataset has it where there are none."""
    around = lmms_eval_specific_kwargs or {}
    before, after = around.get("pre_prompt", ""), around.get("post_prompt", "")
    question = doc["question"].strip()
    if before or after:
        question = question.replace(REQUEST, "")
    return f"{before}{question}{after}"


def mme_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, dict[str, Any]]:
    """What the pair rule needs to know about one question, under the half of MME it belongs to."""
    wanted = _plain(doc["answer"])
    if wanted not in ("yes", "no"):
        raise ValueError(f"the answer of {doc['question_id']} is {doc['answer']!r}, neither yes nor no")
    category = doc["category"]
    if category not in PERCEPTION | COGNITION:
        raise ValueError(f"MME has no category `{category}`")
    judged = {
        "question_id": doc["question_id"],
        "category": category,
        "score": float(read_answer(results[0]) == wanted),
    }
    half = "mme_perception_score" if category in PERCEPTION else "mme_cognition_score"
    return {half: judged, "mme_category_score": judged}


def read_answer(response: str) -> str:
    """`yes`, `no` or `other`: the whole response, a single letter, or what its first four letters hold.

    >>> [read_answer(text) for text in ("Yes.", "n", "No, it is", "I say yes", "y.e.s")]
    ['yes', 'no', 'no', 'other', 'yes']
    """
    text = _plain(response)
    if len(text) == 1:
        return {"y": "yes", "n": "no"}.get(text, "other")
    return next((word for word in ("yes", "no") if word in text[:4]), "other")


def _plain(text: str) -> str:
    return text.lower().strip().replace(".", "")


def mme_total(judged: list[dict[str, Any]]) -> float:
    """The points of all categories together."""
    return sum(mme_by_category(judged).values())


def mme_by_category(judged: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Per category: the share of questions that are right plus the share of pictures with both right, in per cent.

    A picture of which only one question was scored (a limit cut the pair, or the other question failed) is left out.
    """
    pictures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        pictures[one["category"]][one["question_id"]].append(one["score"])
    points = {}
    for category, by_picture in pictures.items():
        crowded = [name for name, scores in by_picture.items() if len(scores) > 2]
        if crowded:
            raise ValueError(f"MME asks two questions about a picture, but more about `{crowded[0]}`")
        pairs = [scores for scores in by_picture.values() if len(scores) == 2]
        if pairs:
            points[category] = sum(50.0 * sum(pair) + 100.0 * all(pair) for pair in pairs) / len(pairs)
    if not points:
        raise ValueError("MME scores pairs of questions, and no pair was scored; is the limit odd?")
    return points
