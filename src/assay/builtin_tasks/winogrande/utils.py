"""WinoGrande with partial evaluation: the beginnings differ, what is scored is the same.

The task file has the roles exchanged, which is how the format says it: choices are contexts, the "text" is the number of
the right one, the "target" what is scored after each.
"""

from __future__ import annotations

from typing import Any


def right_name(document: dict[str, Any]) -> int:
    """The position of the right name among the choices."""
    return {"1": 0, "2": 1}[document["answer"]]


def beginnings(document: dict[str, Any]) -> list[str]:
    """The sentence up to the gap, with each of the names in it.

    >>> beginnings({"sentence": "He thanked _ twice.", "option1": "Ann", "option2": "Bo"})
    ['He thanked Ann', 'He thanked Bo']
    """
    before, _ = _around_the_gap(document)
    return [before + document["option1"], before + document["option2"]]


def rest_of_the_sentence(document: dict[str, Any]) -> str:
    """What comes after the gap.

    >>> rest_of_the_sentence({"sentence": "He thanked _ twice."})
    'twice.'
    """
    _, after = _around_the_gap(document)
    return after.strip()


def _around_the_gap(document: dict[str, Any]) -> tuple[str, str]:
    before, gap, after = document["sentence"].partition("_")
    if not gap:
        raise ValueError(f"the sentence has no gap: {document['sentence']!r}")
    return before, after
