from __future__ import annotations

import numpy as np
import pytest

from assay.stats.comparisons.multiplicity import adjust_p_values
from assay.stats.numerics.distributions import normal_cdf


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
def test_adjusted_p_values_are_those_of_statsmodels(ours: str, theirs: str) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for seed in range(5):
        values = np.random.default_rng(seed).random(23) ** 3
        values[3] = values[7]
        wanted = multitest.multipletests(values, method=theirs)[1]
        assert adjust_p_values(list(values), ours) == pytest.approx(list(wanted))


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    draws = np.random.default_rng(1).random((2000, 20))
    alarms = sum(min(adjust_p_values(list(row))) < 0.05 for row in draws)
    assert alarms / 2000 == pytest.approx(0.05, abs=0.015)
    assert (draws.min(axis=1) < 0.05).mean() > 0.6


def test_p_values_are_unchanged_without_a_correction() -> None:
    assert adjust_p_values([0.2, 0.1], "none") == [0.2, 0.1]
    assert adjust_p_values([]) == []
    with pytest.raises(ValueError, match="bonferoni"):
        adjust_p_values([0.1], "bonferoni")


def test_bh_keeps_the_share_of_false_ones_among_the_alarms() -> None:
    """Twenty tests of which five are of true differences: what share of what is found is false?"""
    draw = np.random.default_rng(2)
    shares, found_by = [], dict.fromkeys(("bh", "holm", "none"), 0)
    for _ in range(500):
        scores = np.abs(draw.normal(size=20) + np.where(np.arange(20) < 5, 3.5, 0.0))
        p_values = [2 * normal_cdf(-float(score)) for score in scores]
        for name in found_by:
            alarms = np.array(adjust_p_values(p_values, name)) < 0.05
            found_by[name] += int(alarms[:5].sum())
            if name == "bh":
                shares.append(alarms[5:].sum() / max(alarms.sum(), 1))
    assert np.mean(shares) <= 0.05
    assert found_by["holm"] < found_by["bh"] < found_by["none"]
