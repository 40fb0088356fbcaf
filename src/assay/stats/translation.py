"""BLEU, chrF and TER of a whole corpus, by sacrebleu, over (reference or references, translation) pairs.

All three are functions of counts that add up over documents. The bootstrap therefore counts every document
once and adds the counts of each resample, instead of cutting the same texts into words a hundred times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingPackage
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["TRANSLATION", "bleu", "chrf", "chrf_words", "ter", "translation_of_rows"]

Rows = NDArray[np.intp]
Pairs = Sequence[tuple[Any, Any]]

TRANSLATION = ("bleu", "chrf", "chrf++", "ter")
"""The aggregations of this module; as metric names they get at most 100 resamples."""


@AGGREGATIONS.register("bleu")
def bleu(values: Pairs) -> float:
    """Corpus BLEU, 0 to 100: the share of short word sequences a translation has in common with its references."""
    return _corpus_score("bleu", values)


@AGGREGATIONS.register("chrf")
def chrf(values: Pairs) -> float:
    """Corpus chrF, 0 to 100: BLEU's idea on character sequences, recall counted twice."""
    return _corpus_score("chrf", values)


@AGGREGATIONS.register("chrf++")
def chrf_words(values: Pairs) -> float:
    """Corpus chrF++, 0 to 100: chrF with single words and word pairs."""
    return _corpus_score("chrf++", values)


@AGGREGATIONS.register("ter")
def ter(values: Pairs) -> float:
    """Corpus translation edit rate: edits per hundred reference words; lower is better."""
    return _corpus_score("ter", values)


def translation_of_rows(name: str, values: Pairs) -> Callable[[Rows], list[float]] | None:
    """The corpus score of many resamples at once, or None when the documents differ in their number of references.

    A corpus is cut to the smallest number of references in it, so there each resample is a case of its own.
    """
    if not _even(values):
        return None
    meter = _meter(name)
    counts = _counts(name, values)

    def score(rows: Rows) -> list[float]:
        return [_score_of(meter, counts[row]) for row in rows]

    return score


def _corpus_score(name: str, values: Pairs) -> float:
    return _score_of(_meter(name), _counts(name, values))


def _score_of(meter: Any, counts: NDArray[Any]) -> float:
    total = np.add.accumulate(counts, axis=0)[-1].tolist()
    return float(meter._compute_score_from_stats(total).score)


def _counts(name: str, values: Pairs) -> NDArray[Any]:
    """What sacrebleu counts in each document: rows that add up."""
    references, translations = _columns(values)
    try:
        return _counted(name, references, translations)
    except TypeError:  # not texts: sacrebleu says what is wrong with them
        return np.array(_statistics(name, references, translations))


@lru_cache(maxsize=4)
def _counted(
    name: str, references: tuple[tuple[str, ...], ...], translations: tuple[str, ...]
) -> NDArray[Any]:
    """Kept for the standard error that is asked for right after the score: TER takes minutes to count."""
    return np.array(_statistics(name, references, translations))


def _statistics(name: str, references: tuple[Any, ...], translations: tuple[Any, ...]) -> Any:
    meter = _meter(name)
    meter._check_corpus_score_args(translations, references)
    return meter._extract_corpus_statistics(translations, references)


def _meter(name: str) -> Any:
    try:
        from sacrebleu.metrics import BLEU, CHRF, TER
    except ImportError:
        raise MissingPackage.of("sacrebleu", f"the aggregation `{name}`", extra="metrics") from None
    match name:
        case "bleu":
            return BLEU()
        case "chrf":
            return CHRF()
        case "chrf++":
            return CHRF(word_order=2)
        case _:
            return TER()


def _columns(values: Pairs) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """As sacrebleu wants it: one row per reference number, and the translations."""
    first: list[Any] = [pair[0] for pair in values]
    second: list[Any] = [pair[1] for pair in values]
    if not _several(first[0]):
        first = [[reference] for reference in first]
    if _several(second[0]):
        if len(second[0]) != 1:
            raise ValueError(f"a corpus metric needs one translation per document, got {second[0]!r}")
        second = [translation[0] for translation in second]
    return tuple(zip(*first, strict=False)), tuple(second)


def _even(values: Pairs) -> bool:
    shapes = {(len(pair[0]) if _several(pair[0]) else 0, _several(pair[1])) for pair in values}
    return len(shapes) == 1


def _several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)
