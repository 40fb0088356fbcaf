"""Metrics that their aggregation computes from (reference, prediction) pairs, and metrics of log-probabilities.

For generated text they return the pair of reference and prediction. `assay.scoring.likelihoods` computes the values for
log-probabilities.
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
    """Return the pair unchanged.

    >>> return_pair(["a cat", "the cat"])
    ['a cat', 'the cat']
    """
    return pair


def return_nothing(pair: Any) -> None:
    """Return None, for tasks that collect responses without scoring them."""


def _register(
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


_register("acc", "mean", _LIKELIHOOD)
_register("acc_norm", "mean", _LIKELIHOOD)
_register("acc_bytes", "mean", _LIKELIHOOD)
_register("acc_mutual_info", "mean", _CHOICE)
_register("acc_all", "mean", ("loglikelihood",))
_register("likelihood", "mean", _CHOICE)
_register("brier_score", "brier_score", _CHOICE, higher_is_better=False)
_register("mcc", "matthews_corrcoef", _CHOICE)
_register("f1", "f1", _CHOICE)
_register("perplexity", "perplexity", ("loglikelihood",), higher_is_better=False)
_register("word_perplexity", "weighted_perplexity", _ROLLING, higher_is_better=False)
_register("byte_perplexity", "weighted_perplexity", _ROLLING, higher_is_better=False)
_register("bits_per_byte", "bits_per_byte", _ROLLING, higher_is_better=False)
_register("bleu", "bleu", _TEXT)
_register("chrf", "chrf", _TEXT)
_register("chrf++", "chrf++", _TEXT)
_register("ter", "ter", _TEXT, higher_is_better=False)
_register("bypass", "bypass", (*_LIKELIHOOD, *_TEXT))
