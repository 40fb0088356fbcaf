from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.regression_alarms import RegressionDetector, compute_look_level


def test_levels_of_all_looks_sum_to_alpha() -> None:
    levels = [compute_look_level(look, 0.05) for look in range(1, 20_000)]
    assert levels[0] == 0
    assert 0.0499 < sum(levels) < 0.05


def test_checkpoints_of_a_frozen_model_raise_few_alarms() -> None:
    draw = np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        probabilities = draw.beta(2, 2, 100)
        detector = RegressionDetector(0.05)
        alarms += any(
            detector.add(step, (draw.random(100) < probabilities).astype(float)) is not None
            for step in range(20)
        )
    assert alarms <= 6  # 3 are expected at most; `benchmarks/checkpoint_alarms.py` measures it


def test_large_drop_is_found_at_once() -> None:
    draw = np.random.default_rng(2)
    detector = RegressionDetector(0.05)
    probabilities = draw.beta(4, 2, 400)
    for step in range(10):
        assert detector.add(step, (draw.random(400) < probabilities).astype(float)) is None
    drop = detector.add(10, (draw.random(400) < probabilities - 0.35).astype(float))
    assert drop is not None
    assert drop.later == (10.0,)
    assert drop.documents == 400
    assert -0.5 < drop.difference < -0.2
    assert drop.p_value <= drop.level < 0.05 / 90


def test_small_drop_that_persists_is_found_by_longer_blocks() -> None:
    draw = np.random.default_rng(3)
    detector = RegressionDetector(0.05)
    probabilities = draw.beta(4, 2, 400)
    found = []
    for step in range(32):
        shift = 0.08 if step >= 16 else 0.0
        found.append(detector.add(step, (draw.random(400) < probabilities - shift).astype(float)))
    assert not any(found[:17])
    drops = [drop for drop in found if drop is not None]
    assert drops and max(len(drop.later) for drop in drops) >= 4


def test_drop_that_is_filled_in_later_is_found() -> None:
    good, bad = np.ones(200), np.zeros(200)
    detector = RegressionDetector(0.05)
    assert detector.add(300, bad) is None
    drop = detector.add(100, good)  # evaluated last, but an earlier checkpoint
    assert drop is not None
    assert (drop.earlier, drop.later, drop.difference) == ((100,), (300,), -1.0)


def test_improvement_raises_no_alarm() -> None:
    detector = RegressionDetector(0.05)
    assert detector.add(1, np.zeros(200)) is None
    assert detector.add(2, np.ones(200)) is None


def test_documents_without_a_score_are_left_out_of_their_comparisons() -> None:
    before, after = np.ones(60), np.zeros(60)
    before[:30] = np.nan
    detector = RegressionDetector(0.05)
    detector.add(1, before)
    drop = detector.add(2, after)
    assert drop is not None
    assert (drop.documents, drop.difference) == (30, -1.0)
    assert drop.p_value == pytest.approx(0.5**30, rel=0.01, abs=1e-13)


def test_documents_of_one_cluster_count_once() -> None:
    before, after = np.ones(60), np.zeros(60)
    clusters = [at // 30 for at in range(60)]
    independent, clustered = RegressionDetector(0.05), RegressionDetector(0.05, clusters)
    for detector in (independent, clustered):
        detector.add(1, before)
    assert independent.add(2, after) is not None
    assert clustered.add(2, after) is None  # two clusters: p = 1/4


def test_real_valued_scores_use_a_bound_instead_of_samples() -> None:
    draw = np.random.default_rng(4)
    before = draw.random(300)
    detector = RegressionDetector(0.05)
    detector.add(1, before)
    drop = detector.add(2, before - draw.random(300) * 0.5)
    assert drop is not None and drop.p_value < 1e-5


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0])
def test_impossible_rates_are_rejected(alpha: float) -> None:
    with pytest.raises(AssayError, match="false-alarm rate"):
        RegressionDetector(alpha)


def test_other_documents_are_rejected() -> None:
    detector = RegressionDetector()
    detector.add(1, [1.0, 0.0])
    with pytest.raises(AssayError, match="same documents"):
        detector.add(2, [1.0])
