"""The error rates of a gate."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.comparisons import comparison
from assay.stats.comparisons.comparison import compare_pairs
from assay.viewer.analysis.gate import compute_drop_p_value
from assay.viewer.comparison.records import ComparisonRow


def build_row(first: np.ndarray, second: np.ndarray) -> ComparisonRow:
    found = compare_pairs(first, second)
    return ComparisonRow(
        task="t",
        metric="m",
        pipeline="none",
        first=found.first,
        second=found.second,
        difference=found.value,
        stderr=found.stderr,
        low=found.interval.low,
        high=found.interval.high,
        interval_method="",
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test="",
        differs=False,
        better=None,
        detectable=None,
        documents=found.documents,
    )


def failure_rate(allowed: float, drop: float, runs: int = 2000) -> float:
    """Return the share of failed runs of 300 documents each with this true drop."""
    draw = np.random.default_rng(1)
    count = 0
    for _ in range(runs):
        first = (draw.random(300) < 0.8).astype(float)
        worse = draw.random(300) < drop / 0.8
        second = np.where(worse, 0.0, first)
        noise = draw.random(300) < 0.1
        second = np.where(noise, draw.random(300) < second.mean(), second).astype(float)
        count += compute_drop_p_value(build_row(first, second), allowed) < 0.05
    return count / runs


def test_the_false_alarm_rate_is_at_most_alpha_and_drops_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alpha is 0.05. The rates are 0.022 (the exact test is conservative) and 0.035, with standard errors below 0.005.

    With an alpha of 0.1 they are 0.046 and 0.085, which these bounds reject.
    """
    monkeypatch.setattr(
        comparison, "find_detectable_difference", lambda *_, **__: None
    )  # slow, not used by a gate
    assert failure_rate(0.0, 0.0) <= 0.035
    assert failure_rate(0.02, 0.02) <= 0.05
    assert failure_rate(0.02, 0.10, runs=100) > 0.9
