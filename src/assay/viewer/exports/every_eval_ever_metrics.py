"""What Every Eval Ever records about a metric: its registered id, family, unit, range and direction."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["REGISTRY_REVISION", "build_metric_config"]

REGISTRY_REVISION = "8b83e9c"
"""The revision of the metric registry that `_REGISTERED_IDS` is from."""

_NAMESPACE = "lm-evaluation-harness"
"""The prefix of metrics without a registered id. Metrics have the names of lm-eval, so that records of both can be joined."""

_REGISTERED_IDS = {
    "acc": "accuracy",
    "em": "exact-match",
    "exact_match": "exact-match",
    "f1_score": "f1",
    "bleu_1": "bleu-1",
    "bleu_4": "bleu-4",
    "rouge1": "rouge-1",
    "rouge2": "rouge-2",
    "rougeL": "rouge-l",
    "rouge_l": "rouge-l",
    **{name: name for name in "accuracy bleu cer f1 perplexity precision recall wer".split()},
}
_FAMILIES = {
    "accuracy": "acc acc_norm accuracy chain_of_thought_correctness em exact_match ifeval_strict_accuracy math_equiv"
    " math_equiv_chain_of_thought mc1 prefix_exact_match quasi_exact_match quasi_prefix_exact_match",
    "f1": "classification_macro_f1 classification_micro_f1 f1 f1_score",
    "precision": "precision",
    "recall": "recall",
    "correlation": "mcc",
    "brier_score": "brier_score",
    "calibration_error": "calibration_error ece",
    "text_overlap": "bleu bleu_1 bleu_4 chrf rouge1 rouge2 rougeL rougeLsum rouge_l",
    "edit_distance": "cer ter wer",
    "perplexity": "byte_perplexity perplexity word_perplexity",
    "compression_rate": "bits_per_byte",
    "dispersion": "std stddev stderr var bootstrap_stderr",
}
_FAMILY_BY_METRIC = {name: family for family, names in _FAMILIES.items() for name in names.split()}
_RANGES: dict[tuple[float, float], str] = {
    (
        0.0,
        1.0,
    ): "accuracy acc acc_norm em exact_match f1 f1_score precision recall mc1 mc2 rouge1 rouge2 rougeL rougeLsum",
    (-1.0, 1.0): "mcc",
    (0.0, 2.0): "brier_score",
    (0.0, 100.0): "bleu chrf",
    (0.0, math.inf): "std stddev stderr bootstrap_stderr var ter bits_per_byte",
    (1.0, math.inf): "word_perplexity byte_perplexity perplexity",
}
_RANGE_BY_METRIC = {name: ends for ends, names in _RANGES.items() for name in names.split()}
_UNITS = {"bits_per_byte": "bits_per_byte", "chrf": "percent", "ter": "percent"}
_UNITS_BY_RANGE = {(0.0, 1.0): "proportion", (0.0, 100.0): "percent"}
_LOWER_IS_BETTER = frozenset(
    "bits_per_byte brier_score byte_perplexity calibration_error cer ece perplexity ter wer word_perplexity".split()
)


def build_metric_config(metric: str, pipeline: str, *, higher_is_better: bool | None) -> dict[str, Any]:
    """Return the `metric_config` of a score, without fields that are unknown.

    >>> build_metric_config("acc", "none", higher_is_better=True)["metric_id"]
    'accuracy'
    """
    ends, family = _RANGE_BY_METRIC.get(metric), _FAMILY_BY_METRIC.get(metric)
    unit = _UNITS.get(metric) or (_UNITS_BY_RANGE.get(ends) if ends else None)
    details = {}
    if family == "dispersion":
        details["polarity"] = "not_applicable"
    elif ends is None and metric not in _LOWER_IS_BETTER and higher_is_better is None:
        details["polarity"] = "unknown"
    if ends is None:
        details["bounds_status"] = "unknown"
    details["metric_id_registry_revision"] = REGISTRY_REVISION
    if metric not in _REGISTERED_IDS:
        details["metric_id_status"] = "unregistered"
    lower = metric in _LOWER_IS_BETTER if higher_is_better is None else not higher_is_better
    limits = {} if ends is None else {"score_type": "continuous", "min_score": ends[0], "max_score": ends[1]}
    return {
        "evaluation_description": metric if pipeline in ("", "none") else f"{metric} (filter: {pipeline})",
        "metric_id": _REGISTERED_IDS.get(metric, f"{_NAMESPACE}.{metric}"),
        "metric_name": metric,
        **({"metric_kind": family} if family else {}),
        **({"metric_unit": unit} if unit else {}),
        "lower_is_better": lower,
        **{key: "Infinity" if value == math.inf else value for key, value in limits.items()},
        "additional_details": details,
    }
