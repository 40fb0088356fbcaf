"""What IFEval has to know of language: sentences, words in capitals, and which language a text is in.

Sentences and words are found by rules that need no data; the language by `langdetect`, as the benchmark defines it, always
with the same random draws (by itself it may answer differently from call to call).
"""

from __future__ import annotations

import re
from functools import lru_cache

import langdetect
from langdetect import detector_factory

_ABBREVIATIONS = frozenset(
    "dr mr mrs ms prof st jr sr rev hon gen col lt sgt capt gov sen rep pres mt ave blvd rd no vol vs etc inc ltd co corp "
    "dept est fig al approx cf e.g i.e u.s u.k u.n a.m p.m ph.d m.d b.a m.a d.c v viz jan feb mar apr jun jul aug sep sept "
    "oct nov dec".split()
)
_ENDED = re.compile(r"(\S*?)([.?!]+)[\"'”’)\]}*_]*\s+(?=(\S))")
_APART = re.compile(r"[\s\[\](){}<>\"“”;?!%$&@#]+|[,:](?!\d)|--+|\.{2,}")
_CONTRACTED = re.compile(r"(?i)(?<=\w)(?:n't|'(?:s|m|d|ll|re|ve))$")


def count_sentences(text: str) -> int:
    """A sentence ends with a full stop, question or exclamation mark before white space; not after abbreviations, initials,
    or dots that go on in lowercase.

    >>> count_sentences("Dr. J. Smith came at 5 p.m. sharp. Really? Yes... well, yes!")
    3
    """
    text = text.strip()
    if not text:
        return 0
    return 1 + sum(_ends(*match.groups()) for match in _ENDED.finditer(text))


def _ends(word: str, marks: str, following: str) -> bool:
    if marks.strip("."):
        return True
    if len(marks) > 1:
        return not following.islower()
    plain = word.lower().lstrip("\"'“‘([{*_")
    return plain.rpartition("-")[2] not in _ABBREVIATIONS and not (len(plain) == 1 and plain.isalpha())


def capital_words(text: str) -> list[str]:
    """Words without a small letter and with at least one capital. Contractions are two words, compounds one.

    >>> capital_words("NASA, a US-BASED agency: I DON'T know. V2!")
    ['NASA', 'US-BASED', 'I', 'DO', "N'T", 'V2']
    """
    words: list[str] = []
    for piece in _APART.split(text):
        contracted = _CONTRACTED.search(piece)
        at = contracted.start() if contracted else len(piece)
        words += [piece[:at], piece[at:]]
    return [word for word in words if word.isupper()]


@lru_cache(maxsize=1024)
def language_of(text: str) -> str | None:
    """The code of the likeliest language; None where there is nothing to tell it by.

    >>> language_of("Der Zug kommt heute leider etwas später an."), language_of("123")
    ('de', None)
    """
    detector_factory.init_factory()
    detector = detector_factory._factory.create()
    detector.seed = 0
    detector.append(text)
    try:
        return str(detector.detect())
    except langdetect.LangDetectException:
        return None
