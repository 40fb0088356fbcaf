"""MATH as its authors compare answers: as texts, after spelling differences of LaTeX are gone. No mathematics."""

from __future__ import annotations

import re
from typing import Any

from assay.builtin_tasks.math.boxed import boxed_answer

_REPLACED = (
    ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""), ("\\right", ""),
    ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""),
)  # fmt: skip
_UNIT = "\\text{ "
"""How the dataset writes units."""

_BARE_ROOT = re.compile(r"\\sqrt(?:$|(?=\\sqrt))")
_SHORT_ROOT = re.compile(r"\\sqrt([^{])", re.DOTALL)


def with_answers(documents: Any) -> Any:
    """Every document with `answer`, what its solution has in the box."""
    return documents.map(
        lambda document: {
            "problem": document["problem"],
            "solution": document["solution"],
            "answer": boxed_answer(document["solution"]),
        }
    )


def process_results(document: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Whether the formula of a response is the right answer."""
    return {"exact_match": int(is_same(between_dollars(results[0]), boxed_answer(document["solution"])))}


def between_dollars(response: str) -> str:
    """From the first dollar sign to the last; the whole response where there are not two.

    >>> between_dollars("It is $x = 2$."), between_dollars("$5")
    ('x = 2', '$5')
    """
    first, last = response.find("$"), response.rfind("$")
    return response[first + 1 : last] if first < last else response


def is_same(one: str, other: str) -> bool:
    r"""Alike in their normal form; as they are where one has none.

    >>> is_same(r"\dfrac12", r"\frac{1}{2}"), is_same("k = 3", "3"), is_same("x/2", "x/2"), is_same("0.25", "1/4")
    (True, True, True, False)
    """
    try:
        return normal_form(one) == normal_form(other)
    except ValueError:
        return one == other


def normal_form(text: str) -> str:
    """The text without spelling differences.

    Raises:
        ValueError: It is not LaTeX in which fractions, roots and units can be told.
    """
    for written, meant in _REPLACED:
        text = text.replace(written, meant)
    if text.count(_UNIT) > 1:
        raise ValueError("more than one unit")
    text = text.partition(_UNIT)[0].replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = f"0{text}"
    if text.count("=") == 1 and text.index("=") <= 2:  # `k =`
        text = text.partition("=")[2]
    if _BARE_ROOT.search(text):
        raise ValueError("a root of nothing")
    text = _in_full(_SHORT_ROOT.sub(r"\\sqrt{\1}", text).replace(" ", ""))
    return _as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _in_full(text: str) -> str:
    r"""`\frac12` and `\frac1{72}` with both braces; the text as it is where a fraction lacks a part."""
    first, *rest = text.split("\\frac")
    made = [first]
    for piece in rest:
        if not piece:
            raise ValueError("a fraction of nothing")
        if piece.startswith("{"):
            made.append(piece)
        elif len(piece) < 2:
            return text
        else:
            below = piece[1:] if piece[1] == "{" else f"{{{piece[1]}}}{piece[2:]}"
            made.append(f"{{{piece[0]}}}{below}")
    return "\\frac".join(made)


def _as_fraction(text: str) -> str:
    r"""`3/4` as `\frac{3}{4}`. With one slash and no two whole numbers around it there is no normal form."""
    if text.count("/") != 1:
        return text
    above, below = map(int, text.split("/"))
    return f"\\frac{{{above}}}{{{below}}}" if text == f"{above}/{below}" else text
