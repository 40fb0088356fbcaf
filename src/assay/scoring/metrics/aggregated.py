"""Metrics that leave the work to their aggregation, or to the judging of log-probabilities.

Asked about a generated text, they hand on the pair of reference and text.
"""

from __future__ import annotations

from typing import Any

from assay.scoring.metrics import METRICS, Metric

__all__ = ["return_nothing", "return_pair"]

_CHOICE = ("multiple_choice",)
_LIKELIHOOD = ("loglikelihood", "multiple_choice")
_ROLLING = ("loglikelihood_rolling",)
_TEXT = ("generate_until",)


def return_pair(pair: Any) -> Any:
    """The pair as it is.

    >>> return_pair(["a cat", "the cat"])
    ['a cat', 'the cat']
    """
    return pair


def return_nothing(pair: Any) -> None:
    """Nothing: the responses are wanted, not their score."""


def _offer(
    name: str, aggregation: str, output_types: tuple[str, ...], *, higher_is_better: bool = True
) -> None:
    METRICS.add(
        name,
        Metric(
            name=name,
            function=return_nothing if name == "bypass" else return_pair,
            aggregation=aggregation,
            higher_is_better=higher_is_better,
            output_types=output_types,
        ),
    )


_offer("acc", "mean", _LIKELIHOOD)
_offer("acc_norm", "mean", _LIKELIHOOD)
_offer("acc_bytes", "mean", _LIKELIHOOD)
_offer("acc_mutual_info", "mean", _CHOICE)
_offer("acc_all", "mean", ("loglikelihood",))
_offer("likelihood", "mean", _CHOICE)
_offer("brier_score", "brier_score", _CHOICE, higher_is_better=False)
_offer("mcc", "matthews_corrcoef", _CHOICE)
_offer("f1", "f1", _CHOICE)
_offer("perplexity", "perplexity", ("loglikelihood",), higher_is_better=False)
_offer("word_perplexity", "weighted_perplexity", _ROLLING, higher_is_better=False)
_offer("byte_perplexity", "weighted_perplexity", _ROLLING, higher_is_better=False)
_offer("bits_per_byte", "bits_per_byte", _ROLLING, higher_is_better=False)
_offer("bleu", "bleu", _TEXT)
_offer("chrf", "chrf", _TEXT)
_offer("chrf++", "chrf++", _TEXT)
_offer("ter", "ter", _TEXT, higher_is_better=False)
_offer("bypass", "bypass", (*_LIKELIHOOD, *_TEXT))
