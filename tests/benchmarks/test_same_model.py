"""The measurement of verdicts on two models."""

from __future__ import annotations

import pytest
from benchmarks.same_model import DELTA, list_families, measure_family, write_table


def test_families_have_the_mean_that_they_state() -> None:
    import numpy as np

    draw = np.random.default_rng(5)
    for family in list_families():
        channels = family.draw(draw, 40_000)
        judged = [channel for channel in channels if channel.signed] or channels
        mean = max(abs(float(channel.values.mean())) for channel in judged)
        assert mean == pytest.approx(family.mean, abs=0.01), family.name


def test_clear_cases_get_the_right_verdict() -> None:
    families = {(one.name, round(one.mean, 2)): one for one in list_families()}
    same = measure_family(families["scores that flip", 0.0], 5)
    different = measure_family(families["scores that flip", 0.3], 5)
    assert (same.same, same.wrong, different.different, different.wrong) == (1.0, 0.0, 1.0, 0.0)
    assert f"tolerance is {100 * DELTA:g} %" in write_table([same, different], 5, 1.0)


def test_a_less_noisy_model_is_not_the_same() -> None:
    families = [one for one in list_families() if "reference run" in one.name or "repeats" in one.name]
    found = {family.name: measure_family(family, 5) for family in families if family.mean > 0.05}
    assert {row.different for row in found.values()} == {1.0} and len(found) == 3
