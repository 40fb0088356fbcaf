r"""MATH-Vision: the prompt, the answer in a long response, and whether two mathematical texts mean the same.

The value of a text is found by a small reader of arithmetic in LaTeX. It knows rational numbers only, as the
benchmark's answers are; what a model writes is never executed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

REQUEST = 'Please solve the problem step by step and put your answer in one "\\boxed{}".'
LETTERS = "ABCDE"
INTRODUCTIONS = ("the final answer is", "the answer is", "the correct answer is", "the answer should be")


def mathvision_doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """The drawing."""
    return [doc["decoded_image"].convert("RGB")]


def mathvision_doc_to_text(
    doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, str] | None = None
) -> str:
    """The request for a boxed answer, the problem, and its choices where it has some."""
    if not doc["options"]:
        return f"{REQUEST}{doc['question']}"
    choices = "\n".join(f"{chr(ord('A') + at)}. {text}" for at, text in enumerate(doc["options"]))
    wish = f"\n{lmms_eval_specific_kwargs['mc_prompt']}" if lmms_eval_specific_kwargs else ""
    return f"{REQUEST}{doc['question']}\nChoices: {choices}{wish}"


def mathvision_process_results(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """Right when the answer is the letter or the value of the choice, or means what the solution says."""
    target = str(doc["answer"])
    targets = [target, doc["options"][ord(target) - ord("A")]] if doc["options"] else [target]
    answer = read_answer(results[0])
    judged = {
        "answer": answer,
        "target": target,
        "subject": doc.get("subject"),
        "level": doc.get("level"),
        "score": float(any(is_same(one, answer) for one in targets)),
    }
    return dict.fromkeys(
        ("mathvision_standard_eval", "mathvision_subject_eval", "mathvision_level_eval"), judged
    )


# --- summing up ----------------------------------------------------------------------------------------------------


def mathvision_percent(judged: list[dict[str, Any]]) -> float:
    """How many are right, per cent, in two decimals."""
    return round(100 * sum(one["score"] for one in judged) / len(judged), 2)


def mathvision_by_subject(judged: list[dict[str, Any]]) -> dict[str, float]:
    """The same for each subject."""
    return _by(judged, "subject")


def mathvision_by_level(judged: list[dict[str, Any]]) -> dict[str, float]:
    """The same for each level of difficulty."""
    return _by(judged, "level")


def _by(judged: Iterable[dict[str, Any]], key: str) -> dict[str, float]:
    parts = defaultdict(list)
    for one in judged:
        parts[str(one[key])].append(one)
    return {name: mathvision_percent(parts[name]) for name in sorted(parts)}


# --- the answer in a response --------------------------------------------------------------------------------------


def read_answer(response: str) -> str:
    r"""What a response gives as its answer, in small letters and plain LaTeX.

    >>> read_answer("So we get \\boxed{\\frac{1}{2}}."), read_answer("The answer is 12."), read_answer("It is (C).")
    ('\\frac{1}{2}', '12', 'c')
    """
    text = response.strip()
    for letter in LETTERS:
        ends = (f" {letter}.", f" ({letter}).")
        begins = (f"{letter}\n", f"({letter})\n", f"({letter}) {letter}\n")
        if text.endswith(ends) or text.startswith(begins):
            text = letter
    last = text.rpartition("is ")[2].rstrip(".")
    if _is_number(last):
        text = last
    boxes = text.count("oxed{")
    if boxes == 0:
        text = _after_introduction(text)
    elif boxes > 1:
        text = "oxed{" + text.rpartition("oxed{")[2]
    text = plain_latex(_boxed(text.lower().replace("{}", "")))
    for letter in LETTERS.lower():
        text = text.replace(f"({letter})", letter).replace(f"{{{letter}}}", letter)
    return text.rstrip(".").lstrip(":").strip()


def _after_introduction(text: str) -> str:
    """What follows the last "the answer is", to the end of its sentence."""
    for phrase in INTRODUCTIONS:
        for form in (phrase, phrase.replace("the", "The")):
            _, found, after = text.rpartition(form)
            text = after.strip()
            if found:
                text = text.split("\n")[0].split(". ")[0]
    return text


def _boxed(text: str) -> str:
    """What stands in the box, cut where its brace closes; then only what follows the last equals sign."""
    box = re.search(r"oxed{(.*)}", text, flags=re.DOTALL)
    inside = box[1] if box else text
    closing, opening = inside.find("}"), inside.find("{")
    if closing != -1 and (opening == -1 or closing < opening):
        inside = inside[:closing]
    return inside.rpartition("=")[2].rpartition("\\approx")[2]


_DROPPED = (
    " ", "\\,", "\n", "\\text", "\\mbox", "\\left", "\\right", "^{\\circ}", "^\\circ", "{m}^3", "m^3", "{units}",
    "units", "{km}", "km", "\\!", "\\$", "$", "\\%",
)  # fmt: skip
_REPLACED = (("∞", "\\infty"), ("+\\infty", "\\infty"), ("\\\\", "\\"), ("bmatrix", "pmatrix"), ("tfrac", "frac"),
             ("dfrac", "frac"), ("{.", "{0."))  # fmt: skip


def plain_latex(text: str) -> str:
    r"""One way to write a thing: no spaces, no sizes of brackets, no units, fractions as `\frac{a}{b}`.

    >>> plain_latex("\\left( 1 , 2 \\right)"), plain_latex("3/4"), plain_latex("\\dfrac{1}{3} km")
    ('(1,2)', '\\frac{3}{4}', '\\frac{1}{3}')
    """
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for word in _DROPPED:
        text = text.replace(word, "")
    if text.startswith("."):
        text = f"0{text}"
    if "sqrt" in text:
        text = re.sub(r"\\sqrt([^{\[])", r"\\sqrt{\1}", text)
    if text == "0.5":
        return "\\frac{1}{2}"
    fraction = re.fullmatch(r"(-?\d+)/(-?\d+)", text)
    return f"\\frac{{{int(fraction[1])}}}{{{int(fraction[2])}}}" if fraction else text


# --- do two texts mean the same? -----------------------------------------------------------------------------------


def is_same(target: str, answer: str) -> bool:
    r"""Whether two texts are the same, or have the same value in two decimals; tuples item by item.

    >>> is_same("0.5", "\\frac{1}{2}"), is_same("(1,2)", "(2/2,2.0)"), is_same("x", "y"), is_same("", "")
    (True, True, False, False)
    """
    target, answer = target.lower().strip(), answer.lower().strip()
    if not target or not answer:
        return False
    if target == answer:
        return True
    wanted, given = _items(target), _items(answer)
    if wanted is not None and given is not None and wanted[0] == given[0]:
        pairs = list(zip(wanted[1:], given[1:], strict=False))
        return len(wanted) == len(given) and all(
            _same_value(one, other) or one == other for one, other in pairs
        )
    return _same_value(target, answer)


def _items(text: str) -> list[str] | None:
    """The kind of bracket and the items of a tuple or list; None when the text is neither."""
    inside = text[1:-1].split(",")
    return [text[0], *inside] if len(inside) > 1 and text[0] + text[-1] in ("()", "[]") else None


def _same_value(one: str, other: str) -> bool:
    first, second = value_of(one), value_of(other)
    return first is not None and second is not None and round(float(first), 2) == round(float(second), 2)


def value_of(text: str) -> Fraction | None:
    r"""The rational number a piece of LaTeX stands for; None when it stands for none.

    >>> value_of("2\\times\\frac{3}{4}"), value_of("2^{3}+1"), value_of("1,000"), value_of("2\\pi")
    (Fraction(3, 2), Fraction(9, 1), Fraction(1000, 1), None)
    """
    try:
        reader = _Arithmetic(text)
        value = reader.sum()
        return value if reader.at_end() or reader.closes_too_much() else None
    except (ArithmeticError, ValueError, IndexError, RecursionError):
        return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Arithmetic:
    """Reads sums, products, powers and fractions of numbers, left to right."""

    TOKEN = re.compile(r"\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+|\\[a-z]+|[-+*/:^(){}\[\]])")
    OPENS = {"(": ")", "{": "}", "[": "]"}  # noqa: RUF012
    TIMES = ("*", "\\times", "\\cdot")
    OVER = ("/", ":", "\\div")
    LARGEST_POWER = 64

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, text = 0, text.replace("$", "").strip()
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not arithmetic: {text[at:]}")
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0

    def at_end(self) -> bool:
        return self._at == len(self._tokens)

    def closes_too_much(self) -> bool:
        """Whether a bracket closes here that was never opened: what follows belongs to the text around."""
        return self._next() in (")", "}", "]")

    def _next(self) -> str:
        return "" if self.at_end() else self._tokens[self._at]

    def _take(self, *wanted: str) -> str:
        token = self._tokens[self._at]
        if wanted and token not in wanted:
            raise ValueError(f"{token} where {wanted} was expected")
        self._at += 1
        return token

    def sum(self) -> Fraction:
        value = self._product()
        while self._next() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> Fraction:
        if self._next() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            return sign * self._product()
        value = self._power()
        while self._next() not in ("", "+", "-", ")", "}", "]"):
            operation = self._take() if self._next() in (*self.TIMES, *self.OVER) else "*"
            sign = -1 if self._next() == "-" and self._take() else 1
            factor = sign * self._power()
            value = value / factor if operation in self.OVER else value * factor
        return value

    def _power(self) -> Fraction:
        value = self._operand()
        if self._next() != "^":
            return value
        self._take()
        exponent = self._operand()
        if exponent.denominator != 1 or abs(exponent) > self.LARGEST_POWER:
            raise ValueError("a power that is not a small whole number")
        return value ** int(exponent)

    def _operand(self) -> Fraction:
        token = self._take()
        if token in self.OPENS:
            value = self.sum()
            self._take(self.OPENS[token])
            return value
        if token == "\\frac":
            return self._braced() / self._braced()
        return Fraction(token.replace(",", ""))

    def _braced(self) -> Fraction:
        self._take("{")
        value = self.sum()
        self._take("}")
        return value
