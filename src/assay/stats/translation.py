"""BLEU, chrF and TER of a corpus, over (reference or references, translation) pairs, with sacrebleu.

All three are functions of counts that add up over documents. The bootstrap counts each document once and adds the
counts of each resample, instead of tokenizing the same texts for every resample. Counts come from public interfaces of
sacrebleu: `corpus_score` of one document (BLEU, TER) and the n-gram functions of `sacrebleu.metrics.helpers` (chrF).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from string import punctuation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingPackage
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["TRANSLATION_AGGREGATIONS", "bleu", "build_translation_scorer", "chrf", "chrf_words", "ter"]

Rows = NDArray[np.intp]
Pairs = Sequence[tuple[Any, Any]]

TRANSLATION_AGGREGATIONS = ("bleu", "chrf", "chrf++", "ter")
"""The aggregations of this module. Metrics with these names have at most 100 resamples."""

_MAX_BLEU_ORDER = 4
_MAX_CHARACTER_ORDER = 6
_WORD_ORDERS = {"chrf": 0, "chrf++": 2}
_CHRF_BETA = 2


@AGGREGATIONS.register("bleu")
def bleu(values: Pairs) -> float:
    """Corpus BLEU, 0 to 100: overlap of word n-grams with the references."""
    return _compute_corpus_score("bleu", values)


@AGGREGATIONS.register("chrf")
def chrf(values: Pairs) -> float:
    """Corpus chrF, 0 to 100: F score of character n-grams with double weight on recall."""
    return _compute_corpus_score("chrf", values)


@AGGREGATIONS.register("chrf++")
def chrf_words(values: Pairs) -> float:
    """Corpus chrF++, 0 to 100: chrF with word unigrams and bigrams."""
    return _compute_corpus_score("chrf++", values)


@AGGREGATIONS.register("ter")
def ter(values: Pairs) -> float:
    """Corpus translation edit rate: edits per hundred reference words; lower is better."""
    return _compute_corpus_score("ter", values)


def build_translation_scorer(name: str, values: Pairs) -> Callable[[Rows], list[float]] | None:
    """Return a function that scores many resamples at once, or None if documents differ in their number of references.

    sacrebleu uses the smallest number of references in a corpus, so such resamples have to be scored one by one.
    """
    if not _have_equal_reference_counts(values):
        return None
    score = _SCORERS[name]
    counts = _count_documents(name, values)

    def score_rows(rows: Rows) -> list[float]:
        return [score(_sum_counts(counts[row])) for row in rows]

    return score_rows


def _compute_corpus_score(name: str, values: Pairs) -> float:
    return _SCORERS[name](_sum_counts(_count_documents(name, values)))


def _sum_counts(counts: NDArray[Any]) -> list[Any]:
    total: list[Any] = np.add.accumulate(counts, axis=0)[-1].tolist()
    return total


def _count_documents(name: str, values: Pairs) -> NDArray[Any]:
    """Return the counts of each document as rows that add up."""
    references, translations = _to_columns(values)
    _check_texts(references, translations)
    return _count_texts(name, references, translations)


def _check_texts(references: tuple[Any, ...], translations: tuple[Any, ...]) -> None:
    if not all(isinstance(text, str) for text in translations):
        raise TypeError("translations must be strings")
    if not all(text is None or isinstance(text, str) for column in references for text in column):
        raise TypeError("references must be strings")


@lru_cache(maxsize=4)
def _count_texts(
    name: str, references: tuple[tuple[str, ...], ...], translations: tuple[str, ...]
) -> NDArray[Any]:
    """Cached for the standard error, which is computed right after the score: counting for TER takes minutes."""
    count = _build_counter(name)
    return np.array([count(*texts) for texts in zip(translations, *references, strict=False)])


def _build_counter(name: str) -> Callable[..., list[Any]]:
    """Return the function that counts one document: (translation, *references) -> counts."""
    try:
        from sacrebleu.metrics import BLEU, TER
        from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_word_ngrams
    except ImportError:
        raise MissingPackage.of("sacrebleu", f"the aggregation `{name}`", extra="metrics") from None

    if name == "bleu":
        bleu_metric = BLEU(force=True)

        def count_bleu(translation: str, *references: str) -> list[Any]:
            found = bleu_metric.corpus_score([translation], [[text] for text in references])
            return [found.sys_len, found.ref_len, *found.counts, *found.totals]

        return count_bleu
    if name == "ter":
        ter_metric = TER()

        def count_ter(translation: str, *references: str) -> list[Any]:
            found = ter_metric.corpus_score([translation], [[text] for text in references])
            return [found.num_edits, found.ref_length]

        return count_ter
    word_order = _WORD_ORDERS[name]

    def extract_ngrams(text: str) -> list[Counter[str]]:
        words = _split_punctuation(text) if word_order else []
        word_ngrams = [extract_word_ngrams(words, order) for order in range(1, word_order + 1)]
        return [*extract_all_char_ngrams(text, _MAX_CHARACTER_ORDER), *word_ngrams]

    def count_chrf(translation: str, *references: str) -> list[Any]:
        ngrams = extract_ngrams(translation)
        candidates = [_count_matches(ngrams, extract_ngrams(text)) for text in references if text is not None]
        return max(candidates, key=_score_chrf)  # the first of several best ones, as in sacrebleu

    return count_chrf


def _split_punctuation(text: str) -> list[str]:
    """Split a text into words; a punctuation mark at the end, else at the start, of a word is a word of its own."""
    words: list[str] = []
    for word in text.split():
        if len(word) > 1 and word[-1] in punctuation:
            words += [word[:-1], word[-1]]
        elif len(word) > 1 and word[0] in punctuation:
            words += [word[0], word[1:]]
        else:
            words.append(word)
    return words


def _count_matches(translation: list[Counter[str]], reference: list[Counter[str]]) -> list[int]:
    """Return [translation n-grams, reference n-grams, matches] for each order, as one list."""
    counts: list[int] = []
    for ours, theirs in zip(translation, reference, strict=True):
        matches = sum(min(count, theirs[ngram]) for ngram, count in ours.items() if ngram in theirs)
        counts += [sum(ours.values()) if theirs else 0, sum(theirs.values()), matches]
    return counts


def _score_bleu(counts: list[Any]) -> float:
    from sacrebleu.metrics import BLEU

    correct, total = counts[2 : 2 + _MAX_BLEU_ORDER], counts[2 + _MAX_BLEU_ORDER :]
    found = BLEU.compute_bleu(
        correct, total, sys_len=int(counts[0]), ref_len=int(counts[1]), smooth_method="exp"
    )
    return float(found.score)


def _score_ter(counts: list[Any]) -> float:
    edits, reference_length = counts
    if reference_length > 0:
        return float(100 * (edits / reference_length))
    return 100.0 if edits > 0 else 0.0


def _score_chrf(counts: list[Any]) -> float:
    """Return the F score of the mean precision and recall over all orders that both sides have."""
    factor = _CHRF_BETA**2
    precision, recall, orders = 0.0, 0.0, 0
    for start in range(0, len(counts), 3):
        ours, theirs, matches = counts[start : start + 3]
        if ours > 0 and theirs > 0:
            precision += matches / ours
            recall += matches / theirs
            orders += 1
    if orders:
        precision /= orders
        recall /= orders
    if not precision + recall:
        return 0.0
    score = (1 + factor) * precision * recall
    score /= (factor * precision) + recall
    return 100 * score


_SCORERS: dict[str, Callable[[list[Any]], float]] = {
    "bleu": _score_bleu,
    "chrf": _score_chrf,
    "chrf++": _score_chrf,
    "ter": _score_ter,
}


def _to_columns(values: Pairs) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return one column per reference number, and the translations."""
    first: list[Any] = [pair[0] for pair in values]
    second: list[Any] = [pair[1] for pair in values]
    if not _is_list(first[0]):
        first = [[reference] for reference in first]
    if _is_list(second[0]):
        if len(second[0]) != 1:
            raise ValueError(f"a corpus metric needs one translation per document, got {second[0]!r}")
        second = [translation[0] for translation in second]
    return tuple(zip(*first, strict=False)), tuple(second)


def _have_equal_reference_counts(values: Pairs) -> bool:
    shapes = {(len(pair[0]) if _is_list(pair[0]) else 0, _is_list(pair[1])) for pair in values}
    return len(shapes) == 1


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)
