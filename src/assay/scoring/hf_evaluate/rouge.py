"""ROUGE through Google's `rouge_score` package, under the keys `evaluate` uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["rouge"]

_KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge(
    *,
    predictions: Sequence[str],
    references: Sequence[Any],
    rouge_types: Sequence[str] | None = None,
    use_aggregator: bool = True,
    use_stemmer: bool = False,
    tokenizer: Callable[[str], list[str]] | None = None,
) -> dict[str, Any]:
    """Return F-measures: the median of a bootstrap over all pairs, or one per pair.

    The bootstrap uses NumPy's global generator, which `LoadedMetric` seeds as `evaluate` does.
    """
    from rouge_score import rouge_scorer, scoring

    kinds = list(_KINDS if rouge_types is None else rouge_types)
    words = None if tokenizer is None else SimpleNamespace(tokenize=tokenizer)
    scorer = rouge_scorer.RougeScorer(kinds, use_stemmer=use_stemmer, tokenizer=words)
    score = scorer.score_multi if isinstance(references[0], list) else scorer.score
    scores = [
        score(reference, prediction) for reference, prediction in zip(references, predictions, strict=True)
    ]
    if not use_aggregator:
        return {kind: [one[kind].fmeasure for one in scores] for kind in scores[0]}
    aggregator = scoring.BootstrapAggregator()
    for one in scores:
        aggregator.add_scores(one)
    return {kind: found.mid.fmeasure for kind, found in aggregator.aggregate().items()}
