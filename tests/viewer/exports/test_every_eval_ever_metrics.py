"""What is known about metrics by their names."""

from __future__ import annotations

import pytest

from assay.viewer.exports.every_eval_ever_metrics import build_metric_config


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("acc", ("accuracy", "accuracy", "proportion", 0.0, 1.0)),
        ("bleu", ("bleu", "text_overlap", "percent", 0.0, 100.0)),
        ("word_perplexity", ("lm-evaluation-harness.word_perplexity", "perplexity", None, 1.0, "Infinity")),
        ("my_metric", ("lm-evaluation-harness.my_metric", None, None, None, None)),
    ],
)
def test_id_family_unit_and_range(metric: str, expected: tuple[object, ...]) -> None:
    config = build_metric_config(metric, "none", higher_is_better=None)
    keys = ("metric_id", "metric_kind", "metric_unit", "min_score", "max_score")
    assert tuple(config.get(key) for key in keys) == expected


def test_a_stated_direction_is_used_and_a_missing_one_is_marked() -> None:
    assert build_metric_config("ter", "none", higher_is_better=None)["lower_is_better"] is True
    assert build_metric_config("mine", "none", higher_is_better=False)["lower_is_better"] is True
    unknown = build_metric_config("mine", "none", higher_is_better=None)
    assert unknown["additional_details"]["polarity"] == "unknown"
    assert "polarity" not in build_metric_config("mine", "none", higher_is_better=True)["additional_details"]
    assert (
        build_metric_config("std", "none", higher_is_better=None)["additional_details"]["polarity"]
        == "not_applicable"
    )


def test_the_filter_is_part_of_the_description() -> None:
    assert (
        build_metric_config("acc", "strict", higher_is_better=True)["evaluation_description"]
        == "acc (filter: strict)"
    )
