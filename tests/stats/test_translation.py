"""The translation metrics equal those of sacrebleu, computed from public interfaces only."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from assay.stats.aggregations import aggregate
from assay.stats.translation import TRANSLATION_AGGREGATIONS, build_translation_scorer

WORDS = [
    "the",
    "cat,",
    "dog.",
    "(house)",
    "tree!",
    "re-run",
    "...",
    "x",
    "über",
    "東京",
    "1,000",
    "U.S.",
    "",
    " ",
]


def build_corpus(seed: int) -> list[tuple[list[str], str]]:
    draw = random.Random(seed)

    def build_text() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(12)))

    references = draw.randrange(1, 4)
    return [([build_text() for _ in range(references)], build_text()) for _ in range(draw.randrange(2, 12))]


def build_metric(name: str) -> Any:
    metrics = pytest.importorskip("sacrebleu.metrics")
    return {
        "bleu": metrics.BLEU,
        "chrf": metrics.CHRF,
        "chrf++": lambda: metrics.CHRF(word_order=2),
        "ter": metrics.TER,
    }[name]()


def score_with_sacrebleu(name: str, corpus: list[tuple[list[str], str]]) -> float:
    references = list(zip(*(texts for texts, _ in corpus), strict=True))
    return float(build_metric(name).corpus_score([text for _, text in corpus], references).score)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", TRANSLATION_AGGREGATIONS)
def test_a_corpus_score_equals_that_of_sacrebleu(name: str, seed: int) -> None:
    corpus = build_corpus(seed)
    assert aggregate(name, corpus) == score_with_sacrebleu(name, corpus)


@pytest.mark.parametrize("name", TRANSLATION_AGGREGATIONS)
def test_the_score_of_a_resample_equals_that_of_its_documents(name: str) -> None:
    corpus = build_corpus(3)
    rows = np.random.default_rng(0).integers(0, len(corpus), size=(5, len(corpus)), dtype=np.intp)
    score = build_translation_scorer(name, corpus)
    assert score is not None
    assert score(rows) == [score_with_sacrebleu(name, [corpus[index] for index in row]) for row in rows]


def test_documents_with_different_numbers_of_references_are_not_resampled_together() -> None:
    assert build_translation_scorer("bleu", [(["a", "b"], "a"), (["a"], "a")]) is None


@pytest.mark.parametrize("corpus", [[(["a"], 1)], [([1], "a")]])
def test_values_that_are_not_texts_are_rejected(corpus: Any) -> None:
    pytest.importorskip("sacrebleu")
    with pytest.raises(TypeError, match="must be strings"):
        aggregate("bleu", corpus)
