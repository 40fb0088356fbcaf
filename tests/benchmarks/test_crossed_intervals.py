"""The simulation of intervals over documents and prompt variants."""

from __future__ import annotations

import pytest
from benchmarks.crossed_intervals import simulate_coverage, simulate_false_alarms


@pytest.mark.parametrize(("variants", "spread"), [(3, 0.3), (5, 0.3), (10, 0.0)])
def test_the_interval_covers_the_mean_over_other_prompts(variants: int, spread: float) -> None:
    row = simulate_coverage(0.8, variants, 200, spread, samples=200)
    assert 0.91 <= row.crossed <= 0.995
    assert row.documents_only <= row.crossed


def test_an_interval_that_ignores_the_prompts_fails() -> None:
    row = simulate_coverage(0.5, 3, 1000, 0.3, samples=100)
    assert row.documents_only < 0.7 < 0.9 <= row.crossed


def test_equal_models_rarely_differ() -> None:
    assert simulate_false_alarms(3, 50, 0.3, samples=60) <= 0.12
