"""The sequential test of equivalence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.equivalence import Channel, decide_equivalence


def test_equal_models_are_the_same_after_enough_documents() -> None:
    few = decide_equivalence([Channel(name="texts", values=np.zeros(60))], delta=0.02)
    assert few.decision == "undecided" and few.decided_after is None
    (channel,) = few.channels
    assert channel.mean == 0.0 and channel.high > 0.02
    assert channel.needed is not None and 150 < channel.needed < 220
    many = decide_equivalence([Channel(name="texts", values=np.zeros(300))], delta=0.02)
    assert many.decision == "same" and many.decided_after is not None and many.decided_after < 200


def test_every_channel_must_be_the_same_and_one_suffices_to_differ() -> None:
    zeros = Channel(name="texts", values=np.zeros(300))
    flips = Channel(name="scores", values=np.tile([1.0, 0, 0, 0], 75))
    found = decide_equivalence([zeros, flips], delta=0.02)
    assert (found.decision, found.decided_by) == ("different", ("scores",))
    unsure = Channel(name="scores", values=np.tile([0.0] * 25 + [1.0] + [0.0] * 24, 6))
    assert decide_equivalence([zeros, unsure], delta=0.02).decision == "undecided"


def test_missing_values_neither_help_nor_hurt() -> None:
    gaps = np.zeros(400)
    gaps[::2] = math.nan
    found = decide_equivalence([Channel(name="texts", values=gaps)], delta=0.02)
    assert found.channels[0].documents == 200
    assert found.decision == "same" and found.decided_after is not None and found.decided_after > 340


def test_bounds_contain_the_mean_and_agree_with_the_verdict() -> None:
    values = np.tile([1.0, 0, 0, 0, 0], 40)
    (channel,) = decide_equivalence([Channel(name="scores", values=values)], delta=0.02).channels
    assert 0.02 < channel.low < 0.2 < channel.high < 0.4


def test_only_the_end_counts_if_the_caller_asks_in_rounds() -> None:
    early = np.concatenate([np.ones(5), np.zeros(1500)])
    assert decide_equivalence([Channel(name="x", values=early)], delta=0.02).decision == "different"
    assert decide_equivalence([Channel(name="x", values=early)], delta=0.02, only_end=True).decision == "same"


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-1.0, 1.0)], ids=["greedy", "noise subtracted"])
def test_errors_are_rarer_than_promised_however_often_one_looks(limits: tuple[float, float]) -> None:
    draw = np.random.default_rng(7)
    wrong = {"same": 0, "different": 0}
    for mean, error in ((0.05, "different"), (0.06, "same")):
        for _ in range(100):
            values = (draw.random(250) < mean).astype(float)
            if limits[0] < 0:
                values += draw.choice([-0.5, 0.5], 250) * (values < 0.5)
            found = decide_equivalence([Channel(name="x", values=values, limits=limits)], delta=0.05)
            wrong[error] += found.decision == error
    assert wrong["different"] <= 0.05 * 100 and wrong["same"] <= 0.05 * 100


def test_invalid_rates_and_no_evidence_are_errors() -> None:
    with pytest.raises(AssayError, match="no discrepancy"):
        decide_equivalence([Channel(name="x", values=np.array([math.nan]))], delta=0.02)
    with pytest.raises(AssayError, match="between 0 and"):
        decide_equivalence([Channel(name="x", values=np.zeros(3))], delta=1.5)


def test_signed_differences_are_tested_in_both_directions() -> None:
    draw = np.random.default_rng(3)
    noise = draw.choice([-1.0, 0.0, 1.0], p=[0.04, 0.92, 0.04], size=8000)

    def decide(shift: float) -> str:
        values = np.clip(noise + np.where(noise == 0, shift, 0.0), -1, 1)
        channel = Channel(name="mean score", values=values, limits=(-1.0, 1.0), signed=True)
        found = decide_equivalence([channel], delta=0.02)
        (result,) = found.channels
        assert result.signed and result.low < values.mean() < result.high
        assert result.is_within(0.02) == (found.decision == "same")
        return found.decision

    assert [decide(shift) for shift in (0.0, 0.1, -0.1)] == ["same", "different", "different"]


def test_only_noise_that_is_certain_helps_to_show_that_models_are_the_same() -> None:
    values = np.full(400, -0.1)
    assert (
        decide_equivalence([Channel(name="x", values=values, limits=(-1, 1))], delta=0.02).decision == "same"
    )
    unsure = Channel(name="x", values=values, limits=(-1, 1), upper=np.full(400, 0.05))
    found = decide_equivalence([unsure], delta=0.02)
    assert found.decision == "undecided" and found.channels[0].high > 0.02


def test_weights_move_the_mean_and_the_verdict_to_the_larger_clusters() -> None:
    values = np.tile([0.0, 0.1], 300)
    weights = np.tile([1.0, 0.05], 300)
    plain = decide_equivalence([Channel(name="x", values=values)], delta=0.02)
    weighted = decide_equivalence([Channel(name="x", values=values, weights=weights)], delta=0.02)
    assert (plain.decision, weighted.decision) == ("different", "same")
    assert weighted.channels[0].mean == pytest.approx(0.005 / 1.05)
