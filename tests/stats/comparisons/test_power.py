from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.comparison import compare_pairs, compute_mcnemar_p_value
from assay.stats.comparisons.power import (
    DifferenceVariance,
    compute_paired_variance,
    count_documents_needed,
    find_detectable_effect,
)
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test


def test_documents_for_scores_on_a_scale_are_those_of_a_t_test() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for effect in (0.9, 0.2, 0.05):
        count = count_documents_needed(effect, DifferenceVariance(between=1.0), power=0.9, alpha=0.01)
        assert power.TTestPower().power(effect, count, 0.01) == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize("documents", [6, 10, 20, 60, 290, 310, 600])
@pytest.mark.parametrize("variance", [0.02, 0.1, 0.4])
def test_right_or_wrong_answers_have_the_power_of_the_exact_test(documents: int, variance: float) -> None:
    effect = find_detectable_effect(documents, DifferenceVariance(between=variance, binary=True))
    assert effect is not None
    differing = min(1.0, max(effect, variance + effect**2))
    shares = [(differing + effect) / 2, (differing - effect) / 2, 1 - differing]
    outcomes, counts = np.unique(
        np.random.default_rng(2).multinomial(documents, shares, size=20_000), axis=0, return_counts=True
    )
    significant = [compute_mcnemar_p_value(int(wins), int(losses)) < 0.05 for wins, losses, _ in outcomes]
    assert counts[significant].sum() / 20_000 == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize("binary", [True, False])
def test_five_documents_detect_nothing(binary: bool) -> None:
    spread = DifferenceVariance(between=0.1, binary=binary)
    assert find_detectable_effect(5, spread) is None
    assert find_detectable_effect(6, spread) is not None


@pytest.mark.parametrize("documents", [8, 12])
def test_sign_flips_have_the_promised_power(documents: int) -> None:
    effect = find_detectable_effect(documents, DifferenceVariance(between=1.0))
    assert effect is not None
    steps = np.random.default_rng(3).normal(effect, 1.0, size=(250, documents))
    found = sum(run_sign_flip_test(row)[0] < 0.05 for row in steps)
    assert found / 250 == pytest.approx(0.8, abs=0.08)


def test_the_effect_of_so_many_documents_needs_so_many_documents() -> None:
    spread = DifferenceVariance(
        between=0.2, within_first=0.1, within_second=0.1, repeats_first=2, repeats_second=2
    )
    effect = find_detectable_effect(500, spread)
    assert effect is not None
    assert count_documents_needed(effect, spread) in (500, 501)


def test_repeats_lessen_the_noise_and_clusters_enlarge_the_variance() -> None:
    once = DifferenceVariance(between=0.1, within_first=0.2, within_second=0.2)
    often = DifferenceVariance(
        between=0.1, within_first=0.2, within_second=0.2, repeats_first=4, repeats_second=4
    )
    assert once.variance == pytest.approx(0.5)
    assert often.variance == pytest.approx(0.2)
    assert DifferenceVariance(between=0.1, design_effect=3.0).variance == pytest.approx(0.3)


def test_the_correlation_of_two_models_saves_documents() -> None:
    assert compute_paired_variance(0.25, 0.25, 0.0) == pytest.approx(0.5)
    assert compute_paired_variance(0.25, 0.25, 0.6) == pytest.approx(0.2)
    with pytest.raises(AssayError, match="correlation"):
        compute_paired_variance(0.25, 0.25, 1.1)


@pytest.mark.parametrize("wrong", [lambda: count_documents_needed(0.0, DifferenceVariance(between=1.0)), lambda: find_detectable_effect(0, DifferenceVariance(between=1.0))])  # fmt: skip
def test_what_cannot_be_answered_is_an_error(wrong: object) -> None:
    with pytest.raises(AssayError):
        wrong()  # type: ignore[operator]


def test_a_difference_of_that_size_is_found_as_often_as_promised() -> None:
    draw = np.random.default_rng(1)
    spread, effect = DifferenceVariance(between=0.2), 0.08
    size = count_documents_needed(effect, spread)
    steps = np.round(8 * draw.normal(effect, np.sqrt(0.2), size=(400, size))) / 8
    found = sum(compare_pairs(np.zeros(size), row).p_value < 0.05 for row in steps)
    assert found / 400 == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(
    ("units", "alpha"), [(6, 0.05), (7, 0.05), (10, 0.05), (8, 0.01), (10, 0.005), (20, 0.05)]
)
def test_the_sign_flip_test_finds_the_detectable_difference_as_often_as_promised(
    units: int, alpha: float
) -> None:
    """With six units only differences of one sign are significant, which Student's t does not know."""
    effect = find_detectable_effect(units, DifferenceVariance(between=1.0), alpha=alpha)
    assert effect is not None
    steps = np.random.default_rng(units).normal(effect, 1.0, size=(400, units))
    power = np.mean([run_sign_flip_test(row)[0] < alpha for row in steps])
    assert abs(power - 0.8) < 0.055  # 2.7 standard errors


def test_too_few_units_for_the_level_detect_nothing() -> None:
    assert find_detectable_effect(7, DifferenceVariance(between=1.0), alpha=0.01) is None
