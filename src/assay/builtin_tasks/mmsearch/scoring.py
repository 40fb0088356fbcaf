"""MMSearch: how good the query was, and how good the answer is."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any


def mmsearch_process_results(doc: dict[str, Any], results: list[Any]) -> dict[str, Any]:
    """Scores of the query and of the answer; a dialogue that ended early has no answer."""
    query, _, answer = (*results[0], "", "", "")[:3]
    targets = [doc["gt_answer"], *(doc.get("alternative_gt_answers") or ())]
    f1 = max(answer_f1(answer, target) for target in targets)
    kind = {"area": doc["area"], "subfield": doc["subfield"], "score": f1}
    return {
        "end2end_f1_score": f1,
        "requery_score": requery_score(query, doc["gt_requery"]),
        "end2end_area_f1": kind,
        "end2end_subfield_f1": kind,
    }


def mmsearch_by_area(judged: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean F1 of news and of knowledge."""
    return _by(judged, "area")


def mmsearch_by_subfield(judged: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean F1 of each subfield."""
    return _by(judged, "subfield")


def _by(judged: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for one in judged:
        parts.setdefault(str(one[key]), []).append(one["score"])
    return {name: sum(parts[name]) / len(parts[name]) for name in sorted(parts)}


# --- the answer ----------------------------------------------------------------------------------------------------


def answer_f1(answer: str, target: str) -> float:
    """F1 over words, without case, punctuation and articles.

    >>> answer_f1("The Eiffel Tower!", "eiffel tower"), answer_f1("Paris", "London"), answer_f1("in Paris", "Paris")
    (1.0, 0.0, 0.6666666666666666)
    """
    given, wanted = _plain_words(answer), _plain_words(target)
    if not given or not wanted:
        return float(given == wanted)
    shared = (Counter(given) & Counter(wanted)).total()
    precision, recall = shared / len(given), shared / len(wanted)
    return 2 * precision * recall / (precision + recall) if shared else 0.0


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:an?|the)\b")


def _plain_words(text: str) -> list[str]:
    return _ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


# --- the query -----------------------------------------------------------------------------------------------------


def requery_score(query: str, target: str) -> float:
    """The mean of BLEU-1 and ROUGE-L: does the query have the right words, and in the right order?

    >>> requery_score("iPhone 16 release date", "iPhone 16 release date") > 0.999, requery_score("weather", "iPhone 16")
    (True, 0.0)
    """
    return (bleu_1(query.split(), target.split()) + rouge_l(query, target)) / 2


def bleu_1(query: Sequence[str], target: Sequence[str]) -> float:
    """The share of the query's words that the target has, less for a query that is shorter than the target."""
    if not query:
        return 0.0
    shared = (Counter(query) & Counter(target)).total()
    too_short = 1.0 if len(query) >= len(target) else math.exp(1 - len(target) / len(query))
    return too_short * shared / len(query)


def rouge_l(query: str, target: str) -> float:
    """F1 over different words: those of the longest common subsequences of all pairs of sentences.

    Sentences end at dots, and each word counts once, as in the `rouge` package the benchmark is scored with.
    """
    given, wanted = _sentences(query), _sentences(target)
    given_words, wanted_words = ({word for one in side for word in one} for side in (given, wanted))
    if not given_words or not wanted_words:
        return 0.0
    common = {word for one in wanted for other in given for word in longest_common(one, other)}
    precision, recall = len(common) / len(given_words), len(common) / len(wanted_words)
    return 2 * precision * recall / (precision + recall + 1e-8)


def _sentences(text: str) -> list[list[str]]:
    return [
        sentence.split() or [""] for sentence in text.split(".") if sentence
    ]  # a blank one is an empty word


def longest_common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several, the one that keeps the words of `one` that come last.

    >>> longest_common("a b c d".split(), "b x d".split())
    ['b', 'd']
    """
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for row, word in enumerate(one, start=1):
        for column, against in enumerate(other, start=1):
            lengths[row][column] = (
                lengths[row - 1][column - 1] + 1
                if word == against
                else max(lengths[row - 1][column], lengths[row][column - 1])
            )
    found: list[str] = []
    row, column = len(one), len(other)
    while row and column:
        if one[row - 1] == other[column - 1]:
            found.append(one[row - 1])
            row, column = row - 1, column - 1
        elif lengths[row - 1][column] > lengths[row][column - 1]:
            row -= 1
        else:
            column -= 1
    return found[::-1]
