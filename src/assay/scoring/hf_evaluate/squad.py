"""Short answers compared as the official SQuAD scripts compare them: articles, case and punctuation do not count."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["compute_f1", "match_exactly", "normalize_answer", "squad", "squad_v2", "tokenize_answer"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Small letters, no punctuation, no articles, single spaces.

    >>> normalize_answer("The  quick, brown fox!")
    'quick brown fox'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def tokenize_answer(text: str) -> list[str]:
    """The words that count."""
    return normalize_answer(text).split() if text else []


def match_exactly(expected: str, answer: str) -> int:
    """1 when both are the same after normalising, else 0.

    >>> exact("the Eiffel Tower", "Eiffel tower.")
    1
    """
    return int(normalize_answer(expected) == normalize_answer(answer))


def compute_f1(expected: str, answer: str) -> float:
    """F1 over shared words; where one side has none, 1 if the other has none either.

    >>> overlap("big red dog", "red dog")
    0.8
    """
    wanted, given = tokenize_answer(expected), tokenize_answer(answer)
    if not wanted or not given:
        return int(wanted == given)
    shared = (Counter(wanted) & Counter(given)).total()
    if shared == 0:
        return 0
    precision, recall = 1.0 * shared / len(given), 1.0 * shared / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def squad(
    *, predictions: Sequence[Mapping[str, Any]], references: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Exact match and F1 in percent, the best over the answers of each question."""
    given = {one["id"]: one["prediction_text"] for one in predictions}
    exacts, overlaps = 0.0, 0.0
    for reference in references:
        texts, answer = reference["answers"]["text"], given[reference["id"]]
        exacts += max(match_exactly(text, answer) for text in texts)
        overlaps += max(_overlap_v1(text, answer) for text in texts)
    count = len(references)
    return {"exact_match": 100.0 * exacts / count, "f1": 100.0 * overlaps / count}


def _overlap_v1(expected: str, answer: str) -> float:
    """The first version has no rule for empty answers: no shared word is 0."""
    return compute_f1(expected, answer) if tokenize_answer(expected) and tokenize_answer(answer) else 0.0


def squad_v2(
    *,
    predictions: Sequence[Mapping[str, Any]],
    references: Sequence[Mapping[str, Any]],
    no_answer_threshold: float = 1.0,
) -> dict[str, Any]:
    """Exact match and F1 in percent, with unanswerable questions, and the best a threshold could make of them."""
    import numpy

    texts = {one["id"]: one["prediction_text"] for one in predictions}
    doubts = {one["id"]: float(numpy.float32(one["no_answer_probability"])) for one in predictions}
    answerable = {one["id"]: bool(one["answers"]["text"]) for one in references}
    exacts, overlaps = _best(references, texts, match_exactly), _best(references, texts, compute_f1)

    def with_threshold(scores: Mapping[str, float]) -> dict[str, float]:
        return {
            key: float(not answerable[key]) if doubts[key] > no_answer_threshold else score
            for key, score in scores.items()
        }

    kept = (with_threshold(exacts), with_threshold(overlaps))
    found: dict[str, Any] = _percent(kept, answerable)
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        keys = [key for key, has in answerable.items() if has is wanted]
        if keys:
            found |= {f"{prefix}_{name}": value for name, value in _percent(kept, keys).items()}
    for name, scores in (("exact", exacts), ("f1", overlaps)):
        best, threshold = _best_threshold(scores, texts, doubts, answerable)
        found |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return found


def _best(
    references: Iterable[Mapping[str, Any]], texts: Mapping[str, str], compare: Callable[[str, str], float]
) -> dict[str, float]:
    scores = {}
    for reference in references:
        if reference["id"] in texts:
            options = [text for text in reference["answers"]["text"] if normalize_answer(text)] or [""]
            scores[reference["id"]] = max(compare(option, texts[reference["id"]]) for option in options)
    return scores


def _percent(scores: tuple[Mapping[str, float], Mapping[str, float]], keys: Iterable[str]) -> dict[str, Any]:
    chosen = list(keys)
    exacts, overlaps = (100.0 * sum(one[key] for key in chosen) / len(chosen) for one in scores)
    return {"exact": exacts, "f1": overlaps, "total": len(chosen)}


def _best_threshold(
    scores: Mapping[str, float],
    texts: Mapping[str, str],
    doubts: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The score if every question more doubtful than some threshold were left unanswered, at its best."""
    current = best = float(sum(not has for has in answerable.values()))
    threshold = 0.0
    for key in sorted(doubts, key=lambda one: doubts[one]):
        if key not in scores:
            continue
        if answerable[key]:
            current += scores[key]
        elif texts[key]:
            current -= 1
        if current > best:
            best, threshold = current, doubts[key]
    return 100.0 * best / len(scores), threshold
