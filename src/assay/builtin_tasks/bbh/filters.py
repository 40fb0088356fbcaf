"""BIG-Bench Hard: what a chain of thought ends with, whatever words announce it.

`NotFound` stands for an answer that is not there; see `assay.scoring.filters.extraction`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from assay.scoring.filters.extraction import NotFound, Regex


class _Search(Regex):
    """Looks into each response by itself. A `Regex` to the engine, so that answers not found are counted as such."""

    per_document: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()

    def apply(self, responses: Sequence[Sequence[Any]], documents: Sequence[Any]) -> list[list[str]]:
        return [
            [self.search(response, document) or NotFound("[invalid]") for response in values]
            for values, document in zip(responses, documents, strict=False)
        ]

    def search(self, response: str, document: dict[str, Any]) -> str:
        raise NotImplementedError


# --- choices with letters -----------------------------------------------------------------------------

_CHOICES = re.compile(r"\([A-Z]\)([^\n^(]*)")
_LETTER = re.compile(r"\([A-Z]\)")


class LetteredChoice(_Search):
    """The last `(A)` of a response; else the choice whose text comes last; else the last letter behind a colon.

    >>> document = {"input": "Which?\\nOptions:\\n(A) a red ball\\n(B) a ball"}
    >>> LetteredChoice().apply([["(A) or (B)", "It is a RED ball!", "answer: B", "none"]], [document])
    [['(B)', '(A)', '(B)', '[invalid]']]
    """

    per_document: ClassVar[bool] = True

    def search(self, response: str, document: dict[str, Any]) -> str:
        letters = _LETTER.findall(response)
        if letters:
            return str(letters[-1])
        texts, in_texts, behind_colon = _readers(document["input"])
        named = in_texts.findall(_plain(response))
        text = named[-1].strip() if named else ""
        if text:
            return texts.get(text, text)
        letters = behind_colon.findall(response)
        return f"({letters[-1]})" if letters and letters[-1] else ""


@lru_cache(maxsize=4096)
def _readers(question: str) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
    """Of a question: text of each choice -> its letter; a pattern for the texts, long ones first; one for letters."""
    choices = [_plain(text.strip()) for text in _CHOICES.findall(question)]
    letters = [chr(ord("A") + at) for at in range(len(choices))]
    texts = {text: f"({letter})" for text, letter in zip(choices, letters, strict=True)}
    in_texts = "|".join(re.escape(text) for text in sorted(choices, key=len, reverse=True))
    return texts, re.compile(in_texts), re.compile(rf":\s*({'|'.join(map(re.escape, letters))})")


def _plain(text: str) -> str:
    return text.lower().translate(_punctuation())


@lru_cache(maxsize=1)
def _punctuation() -> dict[int, None]:
    codes = range(sys.maxunicode)
    return dict.fromkeys(code for code in codes if unicodedata.category(chr(code)).startswith("P"))


# --- yes and no ----------------------------------------------------------------------------------------


class YesOrNo(_Search):
    """Which of two ways of putting it comes last. Given are patterns for whole words.

    >>> judged = YesOrNo(words_for_no="no|not plausible", words_for_yes="yes|plausible")
    >>> judged.apply([["So it is NOT plausible.", "Yes?", "Now"]], [{}])
    [['no', 'yes', '[invalid]']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, words_for_no: str, words_for_yes: str) -> None:
        super().__init__()
        self._either = re.compile(rf"\b({words_for_no})\b|\b({words_for_yes})\b")

    def search(self, response: str, document: dict[str, Any]) -> str:
        found = self._either.findall(response.lower())
        return ("no" if found[-1][0] else "yes") if found else ""


# --- numbers -------------------------------------------------------------------------------------------

_SMALL = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
} | {
    word: 10 * tens
    for tens, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_LARGE = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_ENDS = (
    "zero|one|two|three|four|five|(?:twen|thir|for|fif|six|seven|nine)(?:teen|ty)|eight(?:een|y)|ten|eleven|twelve|"
    "fourteen|hundred|thousand|(?:m|b|tr)illion"
)
"""Words a number ends with. As in lm-eval, six, seven, eight and nine by themselves are none: see the README."""

_STARTS = _ENDS.replace("eight(?:een|y)", "eight(?:|een|y)")
_BETWEEN = _ENDS.replace("(?:teen|ty)", "(?:|teen|ty)") + r"|[^\S\r\n]|,|and|&"
_NUMBER_WORDS = re.compile(rf"(?:(?:{_STARTS})(?:{_BETWEEN})+)?(?:{_ENDS})")
_DIGITS = re.compile("[-0-9]+")


class LastNumber(_Search):
    """The last number in digits; without any, the last one in words.

    >>> LastNumber().apply([["2 + 3 = 5 apples", "two hundred and five", "nothing"]], [{}])
    [['5', '205', '[invalid]']]
    """

    per_document: ClassVar[bool] = True

    def search(self, response: str, document: dict[str, Any]) -> str:
        digits = _DIGITS.findall(response)
        if digits:
            return str(digits[-1])
        words = _NUMBER_WORDS.findall(response.lower())
        return in_digits(words[-1]) if words else ""


def in_digits(words: str) -> str:
    """A number in words, in digits; empty where no word by itself is a number.

    >>> in_digits("two million twenty thousand three hundred and forty"), in_digits("twelve"), in_digits("a lot")
    ('2020340', '12', '')
    """
    total = part = 0
    known = False
    for word in words.split():
        if word in _SMALL:
            part += _SMALL[word]
        elif word == "hundred":
            part = (part or 1) * 100
        elif word in _LARGE:
            total, part = total + (part or 1) * _LARGE[word], 0
        else:
            continue
        known = True
    return str(total + part) if known else ""


# --- sorted words ----------------------------------------------------------------------------------------


class SortedWords(_Search):
    """The words of the question's list in the order in which a response names them last.

    >>> SortedWords().apply([["First pear, then fig. So: fig pear"]], [{"input": "Sort. List: pear fig kiwi"}])
    [['fig pear']]
    """

    per_document: ClassVar[bool] = True

    def search(self, response: str, document: dict[str, Any]) -> str:
        named = _words_of(document["input"]).findall(response)
        return " ".join(reversed(dict.fromkeys(reversed(named))))

    def apply(self, responses: Sequence[Sequence[Any]], documents: Sequence[Any]) -> list[list[str]]:
        """None of the words is an answer too: the empty one."""
        return [
            [self.search(response, document) for response in values]
            for values, document in zip(responses, documents, strict=False)
        ]


@lru_cache(maxsize=4096)
def _words_of(question: str) -> re.Pattern[str]:
    _, mark, words = question.partition("List:")
    if not mark:
        raise ValueError(f"there is no list of words in {question!r:.80}")
    return re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words.partition("List:")[0].split()))
