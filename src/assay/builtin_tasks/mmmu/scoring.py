"""MMMU: reading the answer out of a response, and the accuracies.

The rules are those of the benchmark's own evaluation: a letter is looked for in brackets, then bare, then the text of
a choice; who gives none gets a random letter. An open question is right when one of the answers found in the response
holds one of the accepted ones.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DOMAINS = {
    "Art and Design": "Art Art_Theory Design Music",
    "Business": "Accounting Economics Finance Manage Marketing",
    "Science": "Biology Chemistry Geography Math Physics",
    "Health and Medicine": "Basic_Medical_Science Clinical_Medicine Diagnostics_and_Laboratory_Medicine Pharmacy "
    "Public_Health",
    "Humanities and Social Science": "History Literature Sociology Psychology",
    "Tech and Engineering": "Agriculture Architecture_and_Engineering Computer_Science Electronics Energy_and_Power "
    "Materials Mechanical_Engineering",
}
DOMAIN_OF = {subject: domain for domain, subjects in DOMAINS.items() for subject in subjects.split()}

_ENDS = (",", ".", "!", "?", ";", ":", "'")
_SIGNS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
"""What stands before an answer in a sentence."""

_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),  # 1,000
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),  # 1e3
    re.compile(r"-?(?:\d*\.\d+|\d+\b)(?![eE][+-]?\d|[,\d])"),  # 10 and 1.5
)


def mmmu_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, dict[str, Any]]:
    """What each response was read as, and whether one of them is right."""
    if doc["question_type"] == "multiple-choice":
        options = ast.literal_eval(doc["options"])
        choices = {chr(ord("A") + at): option for at, option in enumerate(options)}
        read: list[Any] = [read_letter(response, choices) for response in results]
        right = any(one in _accepted(doc["answer"]) for one in read)
    else:
        read = [read_open_answer(response) for response in results]
        right = any(is_right_open_answer(one, _accepted(doc["answer"])) for one in read)
    judged = {
        "id": doc["id"],
        "subdomain": subject_of(doc["id"]),
        "question_type": doc["question_type"],
        "answer": doc["answer"],
        "parsed_pred": read,
        "score": float(right),
    }
    return dict.fromkeys(("mmmu_acc", "mmmu_domain_acc", "mmmu_subject_acc"), judged)


def subject_of(document_id: str) -> str:
    """`Art_Theory` of `validation_Art_Theory_12`."""
    match = re.fullmatch(r"[^_]*_(.+?)_\d+", document_id)
    if match is None:
        raise ValueError(f"no subject in `{document_id}`: expected validation_<subject>_<number>")
    return match[1]


def _accepted(answer: str | Sequence[str]) -> list[str]:
    return [answer] if isinstance(answer, str) else list(answer)


# --- multiple choice -----------------------------------------------------------------------------------------------


def read_letter(response: str, choices: Mapping[str, str]) -> str:
    """The letter a response settles on: the last one named in the surest way it names any.

    >>> choices = {"A": "a red apple", "B": "a blue bridge"}
    >>> read_letter("(A) or (B)", choices), read_letter("B", choices), read_letter("It must be a red apple, I say.", choices)
    ('B', 'B', 'A')
    """
    for character in _ENDS:
        response = response.strip(character)
    text = f" {response} "
    for mark, place in (("({})", "({})"), ("{} ", " {} "), ("{}.", " {} ")):
        named = [letter for letter in choices if mark.format(letter) in text]
        if named:
            return _last(named, [text.rfind(place.format(letter)) for letter in named])
    if len(text.split()) > 5:
        small = text.lower()
        named = [letter for letter, option in choices.items() if option.lower() in small]
        if named:
            return _last(named, [small.rfind(choices[letter].lower()) for letter in named])
    return random.choice(list(choices))


def _last(letters: Sequence[str], places: Sequence[int]) -> str:
    """The letter found furthest to the right; the first of those at the same place."""
    return letters[max(range(len(letters)), key=lambda at: places[at])]


# --- open questions ------------------------------------------------------------------------------------------------


def read_open_answer(response: str) -> list[str | float]:
    """Every answer a response may mean: what follows a sign of an answer in each line, and the numbers in it.

    >>> read_open_answer("The result is 1,250.")
    [1250.0, 250.0]
    """
    told = _told(response)
    found = [*told, *(number for text in told for pattern in _NUMBERS for number in pattern.findall(text))]
    return list(dict.fromkeys(form for text in found for form in comparable(text)))


def _told(response: str) -> list[str]:
    text = response.strip().strip(".").lower()
    lines = text.split("\n")
    told = []
    for at, line in enumerate(lines):
        signs = (*_SIGNS, "=") if at == len(lines) - 1 else _SIGNS
        shortest = ""
        for after in (line.rpartition(sign)[2].strip() for sign in signs if sign in line):
            if not shortest or len(after) < len(shortest):
                shortest = after
        if shortest and shortest not in _ENDS:
            told.append(shortest)
    return told or [text]


def comparable(text: str) -> list[str | float]:
    """A number in two decimals; else small letters, a single one with a space so that it is not found in words.

    >>> comparable(" 1,250.004 "), comparable("North"), comparable("B")
    ([1250.0], ['north'], [' b', 'b '])
    """
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        small = text.lower()
        return [f" {small}", f"{small} "] if len(small) == 1 else [small]


def is_right_open_answer(read: Iterable[str | float], accepted: Iterable[str]) -> bool:
    """Whether one of the answers is an accepted number, or holds an accepted text."""
    wanted = [form for answer in accepted for form in comparable(answer)]
    texts = [form for form in wanted if isinstance(form, str)]
    return any(any(text in one for text in texts) if isinstance(one, str) else one in wanted for one in read)


# --- summing up ----------------------------------------------------------------------------------------------------


def mmmu_accuracy(judged: Sequence[Mapping[str, Any]]) -> float:
    """The share that is right, in five decimals."""
    return round(sum(one["score"] for one in judged) / len(judged), 5)


def mmmu_by_subject(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for each subject, in the order of the domains."""
    return _by(judged, [one["subdomain"] for one in judged], list(DOMAIN_OF))


def mmmu_by_domain(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same for each domain."""
    return _by(judged, [DOMAIN_OF.get(one["subdomain"], "other") for one in judged], list(DOMAINS))


def _by(judged: Sequence[Mapping[str, Any]], names: Sequence[str], order: Sequence[str]) -> dict[str, float]:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for name, one in zip(names, judged, strict=True):
        parts.setdefault(name, []).append(one)
    known = [name for name in order if name in parts]
    return {name: mmmu_accuracy(parts[name]) for name in (*known, *sorted(parts.keys() - {*known}))}
