"""Whether a response does what a prompt of IFEval asks for. One short function for each kind of instruction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """How many of the prompt's instructions the response follows."""
    response = results[0].strip()
    arguments = [
        {name: value for name, value in (one or {}).items() if value is not None} for one in doc["kwargs"]
    ]
    followed = [
        bool(response) and CHECKS[kind](response, **given)
        for kind, given in zip(doc["instruction_id_list"], arguments, strict=True)
    ]
    return {"prompt_acc": float(all(followed)), "instruction_acc": sum(followed) / len(followed)}


def no_comma(response: str) -> bool:
    """
    >>> no_comma("One and two."), no_comma("One, two.")
    (True, False)
    """
    return "," not in response


def all_lowercase(response: str) -> bool:
    """
    >>> all_lowercase("dear friend!"), all_lowercase("Dear friend!"), all_lowercase("123")
    (True, False, False)
    """
    return response.islower()


def all_capitals(response: str) -> bool:
    """
    >>> all_capitals("DEAR FRIEND!"), all_capitals("DEAR friend!")
    (True, False)
    """
    return response.isupper()


def has_keywords(response: str, keywords: list[str]) -> bool:
    """
    >>> has_keywords("A Riddle of forests", keywords=["forests", "riddle"]), has_keywords("A riddle", keywords=["forest"])
    (True, False)
    """
    return all(re.search(re.escape(word), response, re.IGNORECASE) for word in keywords)


def avoids_words(response: str, forbidden_words: list[str]) -> bool:
    """Whole words only.

    >>> avoids_words("A stationary bus", forbidden_words=["station"]), avoids_words("The Station.", forbidden_words=["station"])
    (True, False)
    """
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


def has_keyword_often(response: str, keyword: str, frequency: int, relation: str) -> bool:
    """
    >>> has_keyword_often("war and War", keyword="war", frequency=2, relation="at least")
    True
    >>> has_keyword_often("war and War", keyword="war", frequency=2, relation="less than")
    False
    """
    count = len(re.findall(re.escape(keyword), response, re.IGNORECASE))
    return count < frequency if relation == "less than" else count >= frequency


def is_quoted(response: str) -> bool:
    """
    >>> is_quoted('"All of it."'), is_quoted('"Some" of it'), is_quoted('"')
    (True, False, False)
    """
    return len(response) > 1 and response.startswith('"') and response.endswith('"')


def ends_with(response: str, end_phrase: str) -> bool:
    """
    >>> ends_with('Yes. "Any other questions?"', end_phrase="Any other questions?"), ends_with("Yes.", end_phrase="No.")
    (True, False)
    """
    return response.strip('"').lower().endswith(end_phrase.strip().lower())


def has_title(response: str) -> bool:
    """
    >>> has_title("<<A song>> La la"), has_title("<< >> La la"), has_title("A song")
    (True, False, False)
    """
    return any(title.strip() for title in re.findall(r"<<([^<>\n]+)>>", response))


def has_bullets(response: str, num_bullets: int) -> bool:
    """
    >>> has_bullets("* one\\n- two", num_bullets=2), has_bullets("* one\\n**two**", num_bullets=2)
    (True, False)
    """
    return len(re.findall(r"^\s*(?:\*(?!\*)|-)\s*\S", response, re.MULTILINE)) == num_bullets


def is_json(response: str) -> bool:
    """As it is, or in a block of Markdown.

    >>> is_json('{"a": 1}'), is_json('```json\\n[1]\\n```'), is_json("a: 1")
    (True, True, False)
    """
    block = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", response, re.IGNORECASE | re.DOTALL)
    try:
        json.loads(block.group(1) if block else response)
    except ValueError:
        return False
    return True


def has_postscript(response: str, postscript_marker: str) -> bool:
    """A line that begins with the marker, dots and spaces in it aside.

    >>> has_postscript("Bye.\\nP.S. One more thing", postscript_marker="P.S."), has_postscript("Bye.", postscript_marker="P.S.")
    (True, False)
    """
    letters = [re.escape(letter) for letter in postscript_marker if letter.isalpha()]
    marker = r"\.?\s?".join(letters)
    return re.search(rf"^\W*{marker}\b\.?\s*\S", response, re.IGNORECASE | re.MULTILINE) is not None


CHECKS: dict[str, Callable[..., bool]] = {
    "punctuation:no_comma": no_comma,
    "change_case:english_lowercase": all_lowercase,
    "change_case:english_capital": all_capitals,
    "keywords:existence": has_keywords,
    "keywords:forbidden_words": avoids_words,
    "keywords:frequency": has_keyword_often,
    "startend:quotation": is_quoted,
    "startend:end_checker": ends_with,
    "detectable_format:title": has_title,
    "detectable_format:number_bullet_lists": has_bullets,
    "detectable_format:json_format": is_json,
    "detectable_content:postscript": has_postscript,
}
