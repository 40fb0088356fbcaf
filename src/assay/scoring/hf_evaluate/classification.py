"""Classification metrics from scikit-learn (accuracy, F1, …), and exact match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.metrics.exact_match import exact_match as share_of_equals

__all__ = ["accuracy", "exact_match", "f1", "matthews_correlation", "precision", "recall"]


def accuracy(
    *,
    predictions: Sequence[Any],
    references: Sequence[Any],
    normalize: bool = True,
    sample_weight: Any = None,
) -> dict[str, float]:
    """Return the share of correct labels, or their number.

    >>> accuracy(predictions=[1, 0], references=[1, 1])
    {'accuracy': 0.5}
    """
    from sklearn.metrics import accuracy_score

    score = accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight)
    return {"accuracy": float(score)}


def f1(*, predictions: Sequence[Any], references: Sequence[Any], **settings: Any) -> dict[str, Any]:
    """Return F1 of one class, or averaged according to `average`.

    >>> f1(predictions=[1, 0, 1], references=[1, 1, 1])
    {'f1': 0.8}
    """
    return {"f1": _sklearn_score("f1_score", predictions, references, settings)}


def precision(*, predictions: Sequence[Any], references: Sequence[Any], **settings: Any) -> dict[str, Any]:
    """Return the precision of the predicted labels."""
    return {"precision": _sklearn_score("precision_score", predictions, references, settings)}


def recall(*, predictions: Sequence[Any], references: Sequence[Any], **settings: Any) -> dict[str, Any]:
    """Return the recall of the expected labels."""
    return {"recall": _sklearn_score("recall_score", predictions, references, settings)}


def _sklearn_score(name: str, predictions: Sequence[Any], references: Sequence[Any], settings: Any) -> Any:
    import sklearn.metrics

    score = getattr(sklearn.metrics, name)(references, predictions, **settings)
    return float(score) if getattr(score, "size", 1) == 1 else score


def matthews_correlation(
    *, predictions: Sequence[Any], references: Sequence[Any], sample_weight: Any = None
) -> dict[str, float]:
    """Return the Matthews correlation of expected and predicted labels."""
    from sklearn.metrics import matthews_corrcoef

    score = matthews_corrcoef(references, predictions, sample_weight=sample_weight)
    return {"matthews_correlation": float(score)}


def exact_match(
    *, predictions: Sequence[Any], references: Sequence[Any], **settings: Any
) -> dict[str, float]:
    """Return the share of texts that equal their reference. Accepts the settings of the metric `exact_match`."""
    return {"exact_match": share_of_equals(references=references, predictions=predictions, **settings)}
