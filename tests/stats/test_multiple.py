from __future__ import annotations

import numpy as np
import pytest

from assay.stats.multiple import adjusted


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
def test_adjusted_p_values_are_those_of_statsmodels(ours: str, theirs: str) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for seed in range(5):
        values = np.random.default_rng(seed).random(23) ** 3
        values[3] = values[7]
        wanted = multitest.multipletests(values, method=theirs)[1]
        assert adjusted(list(values), ours) == pytest.approx(list(wanted))


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    draws = np.random.default_rng(1).random((2000, 20))
    alarms = sum(min(adjusted(list(row))) < 0.05 for row in draws)
    assert alarms / 2000 == pytest.approx(0.05, abs=0.015)
    assert (draws.min(axis=1) < 0.05).mean() > 0.6


def test_nothing_is_adjusted_where_nobody_asks() -> None:
    assert adjusted([0.2, 0.1], "none") == [0.2, 0.1]
    assert adjusted([]) == []
    with pytest.raises(ValueError, match="bonferoni"):
        adjusted([0.1], "bonferoni")
