"""How often a gate stops a run that is no worse than allowed."""

from __future__ import annotations

import numpy as np

from assay.stats.comparison import compare_pairs
from assay.viewer.analysis.gate import _drop_p_value
from assay.viewer.comparison.records import ComparisonRow


def row_of(first: np.ndarray, second: np.ndarray) -> ComparisonRow:
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


def stopped(allowed: float, drop: float, games: int = 600) -> float:
    """The share of runs that are stopped, of 300 documents each, whose true drop is this."""
    draw = np.random.default_rng(1)
    count = 0
    for _ in range(games):
        first = (draw.random(300) < 0.8).astype(float)
        worse = draw.random(300) < drop / 0.8
        second = np.where(worse, 0.0, first)
        noise = draw.random(300) < 0.1
        second = np.where(noise, draw.random(300) < second.mean(), second).astype(float)
        count += _drop_p_value(row_of(first, second), allowed) < 0.05
    return count / games


def test_the_false_alarm_rate_is_at_most_alpha_and_drops_are_detected() -> None:
    assert stopped(0.0, 0.0) <= 0.06
    assert stopped(0.02, 0.02) <= 0.08
    assert stopped(0.02, 0.10) > 0.9
