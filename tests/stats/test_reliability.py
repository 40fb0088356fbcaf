"""The expected calibration error: closed forms, scikit-learn's calibration curve, and coverage of the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.reliability import compute_choice_confidence, compute_reliability


def test_two_bins_match_the_closed_form() -> None:
    # 4 documents at 0.65, 3 right: |0.75 - 0.65| = 0.1; 6 documents at 0.95, 3 right: |0.5 - 0.95| = 0.45
    found = compute_reliability([0.65] * 4 + [0.95] * 6, [1, 1, 1, 0, 1, 1, 1, 0, 0, 0])
    assert found.ece == pytest.approx(0.4 * 0.1 + 0.6 * 0.45)
    assert [(one.documents, one.accuracy) for one in found.bins] == [(4, 0.75), (6, 0.5)]
    assert found.confidence == pytest.approx(0.83) and found.accuracy == pytest.approx(0.6)
    brier = (3 * 0.35**2 + 0.65**2 + 3 * 0.05**2 + 3 * 0.95**2) / 10
    assert found.brier == pytest.approx(brier)
    assert found.bins[0].accuracy_low < 0.75 < found.bins[0].accuracy_high


@pytest.mark.parametrize("bins", [5, 10, 17])
def test_bins_equal_those_of_scikit_learn(bins: int) -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    random = np.random.default_rng(3)
    confidence = np.concatenate((random.uniform(0, 1, 3000), [0.0, 0.1, 0.2, 0.5, 1.0]))
    right = (random.random(len(confidence)) < confidence**1.5).astype(float)
    accuracy, mean = calibration.calibration_curve(right, confidence, n_bins=bins)
    found = compute_reliability(confidence, right, bins=bins)
    assert [one.accuracy for one in found.bins] == pytest.approx(accuracy.tolist())
    assert [one.confidence for one in found.bins] == pytest.approx(mean.tolist())
    counts = np.array([one.documents for one in found.bins])
    assert found.ece == pytest.approx(float((counts * np.abs(accuracy - mean)).sum() / counts.sum()))


def test_a_calibrated_model_has_the_error_of_chance() -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(60):
        confidence = random.uniform(0.3, 1, 300)
        found.append(compute_reliability(confidence, random.random(300) < confidence))
    errors, chance = np.array([one.ece for one in found]), np.array([one.chance_ece for one in found])
    assert errors.mean() == pytest.approx(chance.mean(), rel=0.15)


def test_the_interval_contains_the_true_error_in_most_samples() -> None:
    random = np.random.default_rng(2)
    hits = 0
    for seed in range(150):  # all confidences are 0.8, 65 % are right: the true error is 0.15
        found = compute_reliability([0.8] * 200, random.random(200) < 0.65, seed=seed)
        assert found.ece_low <= found.ece <= found.ece_high
        hits += found.ece_low <= 0.15 <= found.ece_high
    assert 134 <= hits <= 149  # 95 %, within three standard errors


@pytest.mark.parametrize("gap", [0.0, 0.02, 0.1])
def test_the_interval_contains_small_errors_of_ten_bins(gap: float) -> None:
    random = np.random.default_rng(5)
    samples, hits = 30, 0
    for seed in range(samples):
        confidence = random.uniform(0.1, 1, 1000)
        found = compute_reliability(confidence, random.random(1000) < confidence - gap, seed=seed)
        assert found.ece_low <= found.ece <= found.ece_high < found.ece + 0.06
        hits += found.ece_low <= gap <= found.ece_high
    assert hits >= 26  # 95 %, within three standard errors


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ([-1.0, -1.0], 0.5),
        ([math.log(0.2), math.log(0.6)], 0.75),
        ([-1000.0, -1001.0], 1 / (1 + math.exp(-1))),
        ([-math.inf, -2.0], 1.0),
        ([math.nan, -2.0], 1.0),
    ],
)
def test_confidence_is_the_share_of_the_most_likely_choice(values: list[float], share: float) -> None:
    assert compute_choice_confidence(values) == pytest.approx(share)


def test_no_finite_choice_has_no_confidence() -> None:
    assert math.isnan(compute_choice_confidence([-math.inf, -math.inf]))
    assert math.isnan(compute_choice_confidence([]))
    with pytest.raises(AssayError, match="no documents"):
        compute_reliability([], [])
