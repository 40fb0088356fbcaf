from __future__ import annotations

import itertools

import pytest

from assay.stats.numerics import distributions as ours

scipy_stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy")

PROBABILITIES = [1e-9, 0.001, 0.025, 0.2, 0.5, 0.8, 0.95, 0.975, 0.9999]


@pytest.mark.parametrize("value", [-30.0, -8.0, -1.96, 0.0, 0.3, 5.0])
def test_the_normal_distribution_is_scipys_in_both_tails(value: float) -> None:
    assert ours.normal_cdf(value) == pytest.approx(scipy_stats.norm.cdf(value), rel=1e-12)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_normal_quantiles_are_scipys(probability: float) -> None:
    assert ours.normal_quantile(probability) == pytest.approx(scipy_stats.norm.ppf(probability), abs=1e-8)


@pytest.mark.parametrize(
    ("first", "second"), [(0.5, 0.5), (1, 1), (3.5, 0.5), (0.5, 40), (12, 9000), (9000, 12), (50_000, 50_000)]
)
def test_the_beta_distribution_is_scipys(first: float, second: float) -> None:
    for probability in PROBABILITIES:
        value = float(scipy_stats.beta.ppf(probability, first, second))
        assert ours.beta_cdf(value, first, second) == pytest.approx(
            scipy_stats.beta.cdf(value, first, second), rel=1e-8, abs=1e-13
        )
        assert ours.beta_quantile(probability, first, second) == pytest.approx(value, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize(
    ("degrees", "probability"), [*itertools.product([1, 2, 3.7, 10, 99, 10_000, 10**9], PROBABILITIES)]
)
def test_students_t_is_scipys(degrees: float, probability: float) -> None:
    value = float(scipy_stats.t.ppf(probability, degrees))
    assert ours.t_quantile(probability, degrees) == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert ours.t_cdf(value, degrees) == pytest.approx(probability, rel=1e-6)


@pytest.mark.parametrize(
    ("successes", "trials"), [(-1, 5), (0, 5), (2, 5), (5, 5), (480, 1000), (50_100, 100_000)]
)
def test_the_binomial_distribution_is_scipys(successes: int, trials: int) -> None:
    for probability in (0.1, 0.5):
        wanted = scipy_stats.binom.cdf(successes, trials, probability)
        assert ours.binomial_cdf(successes, trials, probability) == pytest.approx(
            wanted, rel=1e-8, abs=1e-300
        )
