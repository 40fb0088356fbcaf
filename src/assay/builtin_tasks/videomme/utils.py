"""Video-MME: the video, four choices, the letter in the response, and per cents by kind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LETTERS = "ABCD"
FOLDER = "videomme"
"""`cache_dir` of the task file."""

REQUEST = (
    "Select the best answer to the following multiple-choice question based on the video and the subtitles. "
    "Respond with only the letter (A, B, C, or D) of the correct option."
)
DURATIONS = ("short", "medium", "long")

_THINGS = "answer|correct answer|best answer|correct option|best option|choice|correct choice"
PHRASES = (
    *(f"{article}{thing} is" for thing in _THINGS.split("|") for article in ("the ", "")),
    *"i choose|i select|i pick|my answer is|my choice is".split("|"),
    *"옵션|정답은|답은|답:|答案是|答案为|选|答えは".split("|"),
)
"""What people say before a letter, in English, Korean, Chinese and Japanese."""


def videomme_doc_to_visual(doc: dict[str, Any]) -> list[str]:
    """The video of a document, as the archives of the dataset name it."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    name = home / FOLDER / "data" / doc["videoID"]
    found = [f"{name}{suffix}" for suffix in (".mp4", ".MP4", ".mkv") if Path(f"{name}{suffix}").exists()]
    if not found:
        raise FileNotFoundError(f"there is no video {name}.mp4 (nor .MP4, nor .mkv)")
    return found[:1]


def videomme_doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, Any] | None = None) -> str:
    """The request, the question, its choices (which carry their letters) and the ending of the task file."""
    wishes = lmms_eval_specific_kwargs or {}
    choices = "\n".join(doc["options"])
    if wishes.get("format") == "qwen3_vl":
        return f"{wishes['pre_prompt']}{doc['question']}\nOptions:\n{choices}\n{wishes['post_prompt']}"
    ending = wishes.get("post_prompt", "The best answer is:")
    return f"{REQUEST}\n{doc['question']}\n{choices}\n{ending}"


def videomme_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, dict[str, Any]]:
    """Right or wrong, with everything the breakdowns and the clustered standard error need to know."""
    letter = read_letter(results[0])
    judged = {
        "question_id": doc["question_id"],
        "duration": doc["duration"],
        "category": doc["domain"],
        "sub_category": doc["sub_category"],
        "task_category": doc["task_type"],
        "pred_answer": letter,
        "answer": doc["answer"],
        "score": float(letter.lower() == doc["answer"].lower()),
        "videoID": doc["videoID"],
    }
    kinds = ("perception", "duration", "category", "sub_category", "task")
    return {f"videomme_{kind}_score": judged for kind in kinds}


# --- the letter in a response --------------------------------------------------------------------------------------


def read_letter(response: str) -> str:
    """The letter a response gives, in the surest way it gives any; of several, the last. Empty when there is none.

    >>> [read_letter(text) for text in ("B", "B. a dog", "I think it is C", "the answer is (D)", "(A)? (B)!", "no")]
    ['B', 'B', 'C', 'D', 'B', '']
    """
    text = response.strip()
    for character in (*",.!?;:'", '"'):
        text = text.strip(character)
    bare = text.strip()
    if not bare:
        return ""
    if bare[0] in LETTERS and not bare[1:2].isalpha():
        return bare[0]
    if bare[-1] in LETTERS and not bare[-2:-1].isalpha():
        return bare[-1]
    text = f" {text} "
    return _after_phrase(text) or _marked(text)


def _after_phrase(text: str) -> str:
    """Of the letters that follow a phrase, each where it first does, the last."""
    small = text.lower()
    ends = [small.find(phrase) + len(phrase) for phrase in PHRASES if phrase in small]
    places = {letter: max((text.find(letter, end) for end in ends), default=-1) for letter in LETTERS}
    return _furthest(places)


def _marked(text: str) -> str:
    """The last letter in brackets, else before a dot, a colon, a bracket, a space, else anywhere."""
    for mark in ("({})", "{}.", "{}:", "{})", "{} ", "{}"):
        letter = _furthest({letter: text.rfind(mark.format(letter)) for letter in LETTERS})
        if letter:
            return letter
    return ""


def _furthest(places: Mapping[str, int]) -> str:
    """The letter at the highest place; empty when all places are -1."""
    letter = max(places, key=lambda one: places[one])
    return letter if places[letter] >= 0 else ""


# --- summing up ----------------------------------------------------------------------------------------------------


def videomme_percent(judged: Sequence[Mapping[str, Any]]) -> float:
    """How many are right, per cent."""
    return 100 * sum(one["score"] for one in judged) / len(judged)


def videomme_by_duration(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for short (under 2 minutes), medium (4 to 15) and long videos (30 to 60)."""
    scores = _by(judged, "duration")
    known = [name for name in DURATIONS if name in scores]
    return {name: scores[name] for name in dict.fromkeys((*known, *scores))}


def videomme_by_category(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for each of the six kinds of video."""
    return _by(judged, "category")


def videomme_by_sub_category(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for each of the thirty finer kinds of video."""
    return _by(judged, "sub_category")


def videomme_by_task(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for each of the twelve kinds of question."""
    return _by(judged, "task_category")


def _by(judged: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    names = sorted({one[key] for one in judged})
    return {name: videomme_percent([one for one in judged if one[key] == name]) for name in names}
