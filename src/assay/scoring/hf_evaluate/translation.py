"""sacreBLEU, chrF and TER under the keys `evaluate` uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["chrf", "sacrebleu", "ter"]


def sacrebleu(
    *,
    predictions: Sequence[str],
    references: Sequence[Any],
    smooth_method: str = "exp",
    smooth_value: float | None = None,
    force: bool = False,
    lowercase: bool = False,
    tokenize: str | None = None,
    use_effective_order: bool = False,
) -> dict[str, Any]:
    """Return BLEU in percent, as in WMT."""
    from sacrebleu import corpus_bleu

    found = corpus_bleu(
        list(predictions),
        _transpose_references(references),
        smooth_method=smooth_method,
        smooth_value=smooth_value,
        force=force,
        lowercase=lowercase,
        use_effective_order=use_effective_order,
        **({"tokenize": tokenize} if tokenize else {}),
    )
    return {
        "score": found.score,
        "counts": found.counts,
        "totals": found.totals,
        "precisions": found.precisions,
        "bp": found.bp,
        "sys_len": found.sys_len,
        "ref_len": found.ref_len,
    }


def chrf(*, predictions: Sequence[str], references: Sequence[Any], **settings: Any) -> dict[str, Any]:
    """Return the F-score over character (and word) n-grams, in percent."""
    from sacrebleu import CHRF

    scorer = CHRF(**settings)
    found = scorer.corpus_score(list(predictions), _transpose_references(references))
    return {
        "score": found.score,
        "char_order": scorer.char_order,
        "word_order": scorer.word_order,
        "beta": scorer.beta,
    }


def ter(
    *,
    predictions: Sequence[str],
    references: Sequence[Any],
    normalized: bool = False,
    ignore_punct: bool = False,
    support_zh_ja_chars: bool = False,
    case_sensitive: bool = False,
) -> dict[str, Any]:
    """Return the edits per reference word, including shifts, in percent."""
    from sacrebleu import TER

    scorer = TER(
        normalized=normalized,
        no_punct=ignore_punct,
        asian_support=support_zh_ja_chars,
        case_sensitive=case_sensitive,
    )
    found = scorer.corpus_score(list(predictions), _transpose_references(references))
    return {"score": found.score, "num_edits": found.num_edits, "ref_length": found.ref_length}


def _transpose_references(references: Sequence[Any]) -> list[list[str]]:
    """Transpose the lists of references to the format of sacreBLEU."""
    several = [[one] if isinstance(one, str) else list(one) for one in references]
    if len({len(one) for one in several}) > 1:
        raise ValueError("every prediction needs the same number of references")
    return [list(stream) for stream in zip(*several, strict=True)]
