from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparison import compare_pairs
from assay.stats.power import (
    DifferenceVariance,
    compute_paired_variance,
    count_documents_needed,
    find_detectable_effect,
)


def test_documents_for_a_normal_test_are_those_of_statsmodels() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for effect in (0.2, 0.05):
        wanted = power.normal_power_het  # the exact power of a two-sided normal test
        count = count_documents_needed(effect, DifferenceVariance(between=1.0), power=0.9, alpha=0.01)
        reached = wanted(effect, count, 0.01, std_null=1.0, alternative="two-sided")
        assert reached == pytest.approx(0.9, abs=0.002)


def test_the_effect_of_so_many_documents_needs_so_many_documents() -> None:
    spread = DifferenceVariance(
        between=0.2, within_first=0.1, within_second=0.1, repeats_first=2, repeats_second=2
    )
    assert count_documents_needed(find_detectable_effect(500, spread), spread) in (500, 501)


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
