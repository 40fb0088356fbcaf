"""Metrics: the scores that `metric_list` of a task can name.

A metric scores one document. Assay calls it with the keywords `references` and `predictions`, two lists of equal
length. A metric that does not accept these keywords gets one pair `[reference, prediction]`; corpus metrics return that
pair for their aggregation. `assay.scoring.likelihoods` computes the metrics of log-probabilities (`acc`, `perplexity`,
…); their entries here define the aggregation and whether higher is better.

To add a metric, add a file to this folder and register the function with `@metric("name")`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.core.errors import InvalidOption
from assay.core.registry import Registry

__all__ = ["METRICS", "Metric", "metric"]

F = TypeVar("F", bound=Callable[..., Any])


_SUMMARIES = {
    "acc": "Share of documents whose target has the highest log probability",
    "acc_all": "Share of questions whose answers are all judged correctly",
    "acc_bytes": "acc, with log probabilities divided by the bytes of the choice",
    "acc_mutual_info": "acc, with log probabilities minus those without the question",
    "acc_norm": "acc, with log probabilities divided by the length of the choice",
    "bits_per_byte": "Bits that the model needs for a byte of the text",
    "bleu": "BLEU of sacrebleu over all documents: common word sequences",
    "brier_score": "Mean squared distance of the choice probabilities from the target",
    "byte_perplexity": "Perplexity per byte of the text",
    "chrf": "chrF over all documents: common character sequences",
    "chrf++": "chrF++ over all documents: common character and word sequences",
    "f1": "F1 of the predicted classes over all documents",
    "likelihood": "Probability of the target among the choices",
    "mcc": "Matthews correlation of predicted and true classes over all documents",
    "perplexity": "Perplexity of the target",
    "ter": "Translation edit rate over all documents",
    "word_perplexity": "Perplexity per word of the text",
    "accuracy": "Accuracy of the package `evaluate`",
    "cer": "Character error rate of the package `evaluate`",
    "wer": "Word error rate of the package `evaluate`",
}
"""Descriptions of metrics whose function only collects the input of an aggregation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with its defaults."""

    name: str
    function: Callable[..., Any]
    aggregation: str = "mean"
    higher_is_better: bool = True
    output_types: tuple[str, ...] = ()
    """The output types it supports. Empty: any."""

    @property
    def about(self) -> str:
        """A description for lists."""
        better = "higher" if self.higher_is_better else "lower"
        kinds = f", for {' and '.join(self.output_types)}" if self.output_types else ""
        text = _SUMMARIES.get(self.name) or (self.function.__doc__ or "").strip().partition("\n")[0]
        lead = f"{text.rstrip('.:')}; " if text else ""
        return f"{lead}{self.aggregation} over documents, {better} is better{kinds}"


METRICS: Registry[Metric] = Registry("metric", builtin_package="assay.scoring.metrics")
"""Every metric that `metric_list` can name. Each module of this folder registers its metrics."""


def metric(
    name: str, *, aggregation: str = "mean", higher_is_better: bool = True, output_types: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Return a decorator that registers a function as a metric.

    >>> @metric("shouting", higher_is_better=False)
    ... def shouting(*, references, predictions):
    ...     return float(predictions[0].isupper())
    >>> METRICS.get("shouting").aggregation
    'mean'
    """

    def register(function: F) -> F:
        if name in METRICS:
            owners = _origin(METRICS.get(name).function), _origin(function)
            if owners[0] != owners[1]:
                raise InvalidOption(
                    f"two metrics are called `{name}`: {owners[0]} and {owners[1]}", hint="rename one of them"
                )
        METRICS.add(
            name,
            Metric(
                name=name,
                function=function,
                aggregation=aggregation,
                higher_is_better=higher_is_better,
                output_types=output_types,
            ),
        )
        return function

    return register


def _origin(function: Callable[..., Any]) -> str:
    """Return where a function is defined, so that loading it twice is not a conflict."""
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
