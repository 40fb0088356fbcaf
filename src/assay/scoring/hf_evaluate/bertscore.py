"""BERTScore through the `bert_score` package, under the keys `evaluate` uses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

__all__ = ["bertscore"]


def bertscore(
    *,
    predictions: Sequence[str],
    references: Sequence[Any],
    lang: str | None = None,
    model_type: str | None = None,
    idf: bool = False,
    batch_size: int = 64,
    verbose: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Return precision, recall and F1 of each pair by the similarity of contextual embeddings.

    Raises:
        ValueError: Neither `lang` nor `model_type` is set.
    """
    if lang is None and model_type is None:
        raise ValueError("`bertscore` needs `lang` or `model_type`")
    known = {key: value for key, value in settings.items() if value is not None}
    options = tuple(sorted({"lang": lang, "model_type": model_type, "idf": idf, **known}.items()))
    scorer = _load_scorer(options, tuple(_flatten_references(references)) if idf else None)
    found = scorer.score(list(predictions), list(references), verbose=verbose, batch_size=batch_size)
    precision, recall, f1 = (part.tolist() for part in found)
    return {"precision": precision, "recall": recall, "f1": f1, "hashcode": scorer.hash}


@lru_cache(maxsize=2)
def _load_scorer(options: tuple[tuple[str, Any], ...], idf_sents: tuple[str, ...] | None) -> Any:
    """Load a scorer. Cached, because loading the model takes long."""
    from bert_score import BERTScorer

    return BERTScorer(**dict(options), idf_sents=None if idf_sents is None else list(idf_sents))


def _flatten_references(references: Sequence[Any]) -> list[str]:
    return [text for one in references for text in ([one] if isinstance(one, str) else one)]
