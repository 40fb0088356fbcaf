"""SQuAD metrics as in the official scripts. Articles, case and punctuation do not count."""

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
    """Convert to lower case and remove punctuation, articles and extra spaces.

    >>> normalize_answer("The  quick, brown fox!")
    'quick brown fox'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def tokenize_answer(text: str) -> list[str]:
    """Split a normalised answer into words."""
    return normalize_answer(text).split() if text else []


def match_exactly(expected: str, answer: str) -> int:
    """Return 1 if both are equal after normalisation, otherwise 0.

    >>> match_exactly("the Eiffel Tower", "Eiffel tower.")
    1
    """
    return int(normalize_answer(expected) == normalize_answer(answer))


def compute_f1(expected: str, answer: str) -> float:
    """Return F1 over shared words. If one side is empty, return 1 if both are.

    >>> compute_f1("big red dog", "red dog")
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
    """Return exact match and F1 in percent, the best over the answers of each question."""
    given = {one["id"]: one["prediction_text"] for one in predictions}
    exacts, f1_scores = 0.0, 0.0
    for reference in references:
        texts, answer = reference["answers"]["text"], given[reference["id"]]
        exacts += max(match_exactly(text, answer) for text in texts)
        f1_scores += max(_compute_f1_v1(text, answer) for text in texts)
    count = len(references)
    return {"exact_match": 100.0 * exacts / count, "f1": 100.0 * f1_scores / count}


def _compute_f1_v1(expected: str, answer: str) -> float:
    """Return F1 as SQuAD 1 defines it: 0 without shared words, also for empty answers."""
    return compute_f1(expected, answer) if tokenize_answer(expected) and tokenize_answer(answer) else 0.0


def squad_v2(
    *,
    predictions: Sequence[Mapping[str, Any]],
    references: Sequence[Mapping[str, Any]],
    no_answer_threshold: float = 1.0,
) -> dict[str, Any]:
    """Return exact match and F1 in percent, with unanswerable questions and the best no-answer threshold."""
    import numpy

    texts = {one["id"]: one["prediction_text"] for one in predictions}
    no_answer_probabilities = {
        one["id"]: float(numpy.float32(one["no_answer_probability"])) for one in predictions
    }
    answerable = {one["id"]: bool(one["answers"]["text"]) for one in references}
    exacts, f1_scores = (
        _best_scores(references, texts, match_exactly),
        _best_scores(references, texts, compute_f1),
    )

    def with_threshold(scores: Mapping[str, float]) -> dict[str, float]:
        return {
            key: float(not answerable[key]) if no_answer_probabilities[key] > no_answer_threshold else score
            for key, score in scores.items()
        }

    kept = (with_threshold(exacts), with_threshold(f1_scores))
    found: dict[str, Any] = _to_percent(kept, answerable)
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        keys = [key for key, has in answerable.items() if has is wanted]
        if keys:
            found |= {f"{prefix}_{name}": value for name, value in _to_percent(kept, keys).items()}
    for name, scores in (("exact", exacts), ("f1", f1_scores)):
        best, threshold = _best_threshold(scores, texts, no_answer_probabilities, answerable)
        found |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return found


def _best_scores(
    references: Iterable[Mapping[str, Any]], texts: Mapping[str, str], compare: Callable[[str, str], float]
) -> dict[str, float]:
    scores = {}
    for reference in references:
        if reference["id"] in texts:
            options = [text for text in reference["answers"]["text"] if normalize_answer(text)] or [""]
            scores[reference["id"]] = max(compare(option, texts[reference["id"]]) for option in options)
    return scores


def _to_percent(
    scores: tuple[Mapping[str, float], Mapping[str, float]], keys: Iterable[str]
) -> dict[str, Any]:
    chosen = list(keys)
    exacts, f1_scores = (100.0 * sum(one[key] for key in chosen) / len(chosen) for one in scores)
    return {"exact": exacts, "f1": f1_scores, "total": len(chosen)}


def _best_threshold(
    scores: Mapping[str, float],
    texts: Mapping[str, str],
    no_answer_probabilities: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """Return the best score over all no-answer thresholds, and its threshold."""
    current = best = float(sum(not has for has in answerable.values()))
    threshold = 0.0
    for key in sorted(no_answer_probabilities, key=lambda one: no_answer_probabilities[one]):
        if key not in scores:
            continue
        if answerable[key]:
            current += scores[key]
        elif texts[key]:
            current -= 1
        if current > best:
            best, threshold = current, no_answer_probabilities[key]
    return 100.0 * best / len(scores), threshold
