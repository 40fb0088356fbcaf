"""BLEU as `evaluate` computes it: the counts and the penalty of tensorflow/nmt with mteval-v13a tokens.

It differs from sacreBLEU, which applies smoothing and reports percent.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["bleu", "tokenize_13a"]

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_STEPS = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),  # punctuation, but for ' , - .
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # a point or comma not after a digit
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),  # nor before one
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),  # a dash after a digit
)


def tokenize_13a(line: str) -> list[str]:
    """Split a line into tokens by the rules of the NIST script mteval-v13a.

    >>> tokenize_13a("It costs 1,234.5, says \\"Bob\\".")
    ['It', 'costs', '1,234.5', ',', 'says', '"', 'Bob', '"', '.']
    """
    line = line.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES if "&" in line else ():
        line = line.replace(entity, character)
    line = f" {line} "
    for pattern, replacement in _STEPS:
        line = pattern.sub(replacement, line)
    return line.split()


def bleu(
    *,
    predictions: Sequence[str],
    references: Sequence[Any],
    tokenizer: Callable[[str], list[str]] = tokenize_13a,
    max_order: int = 4,
    smooth: bool = False,
) -> dict[str, Any]:
    """Return the corpus BLEU between 0 and 1, and its parts.

    >>> bleu(predictions=["the cat sat on the mat"], references=[["the cat sat on a mat"]])["precisions"][0]
    0.8333333333333334
    """
    several = [[one] if isinstance(one, str) else one for one in references]
    hits, possible = [0] * max_order, [0] * max_order
    written = expected = 0
    for prediction, options in zip(predictions, several, strict=True):
        words, others = tokenizer(prediction), [tokenizer(option) for option in options]
        written += len(words)
        expected += min(len(other) for other in others)
        best: Counter[tuple[str, ...]] = Counter()
        for other in others:
            best |= _count_ngrams(other, max_order)
        for gram, count in (_count_ngrams(words, max_order) & best).items():
            hits[len(gram) - 1] += count
        for order in range(max_order):
            possible[order] += max(0, len(words) - order)
    precisions = [_precision(hit, total, smooth) for hit, total in zip(hits, possible, strict=True)]
    middle = math.exp(sum(math.log(one) / max_order for one in precisions)) if min(precisions) > 0 else 0.0
    ratio = written / expected
    penalty = (
        1.0 if ratio > 1.0 else math.exp(1 - 1.0 / ratio)
    )  # ZeroDivisionError for no words, as `evaluate`
    return {
        "bleu": middle * penalty,
        "precisions": precisions,
        "brevity_penalty": penalty,
        "length_ratio": ratio,
        "translation_length": written,
        "reference_length": expected,
    }


def _count_ngrams(words: list[str], longest: int) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, longest + 1)
        for start in range(len(words) - order + 1)
    )


def _precision(hit: int, total: int, smooth: bool) -> float:
    if smooth:
        return (hit + 1.0) / (total + 1.0)
    return hit / total if total > 0 else 0.0
