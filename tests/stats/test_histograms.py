"""Histograms: round edges, single values, long tails; every value is in exactly one bin."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.histograms import choose_scale, compute_histogram


def test_few_values_have_one_bin_each() -> None:
    found = compute_histogram([1, 0, 1, 0.5, np.nan, 1])
    assert found.exact and found.count == 5
    assert [(one.low, one.count) for one in found.bins] == [(0, 1), (0.5, 1), (1, 3)]
    assert found.mean == pytest.approx(0.7)


@pytest.mark.parametrize("size", [1e-250, 1e-20, 1e-13, 1.0, 1e15])
def test_edges_are_round_at_every_size(size: float) -> None:
    found = compute_histogram(np.linspace(0, 1, 201) * size)
    assert sum(one.count for one in found.bins) == 201
    assert [one.low for one in found.bins] == pytest.approx(np.arange(20) * 0.05 * size, rel=1e-12, abs=0)
    assert [one.low for one in found.bins] == [float(f"{one.low:.3g}") for one in found.bins]


def test_edges_are_round_and_quantiles_exact() -> None:
    found = compute_histogram(np.linspace(0, 1, 201))
    assert [one.low for one in found.bins] == pytest.approx(np.arange(20) * 0.05)
    assert dict(found.quantiles) == pytest.approx({0.5: 0.5, 0.9: 0.9, 0.99: 0.99})


def test_counts_have_whole_edges() -> None:
    found = compute_histogram(np.arange(10, 55), whole=True)
    assert all(one.low == int(one.low) and one.high == int(one.high) for one in found.bins)
    assert sum(one.count for one in found.bins) == 45


@pytest.mark.parametrize("whole", [True, False])
def test_a_long_tail_gets_a_logarithmic_scale(whole: bool) -> None:
    values = np.floor(np.random.default_rng(0).lognormal(3, 1.6, 5000))
    values = values if whole else values + 0.25
    found = compute_histogram(values, whole=whole)
    assert found.scale.kind == "log"
    assert sum(one.count for one in found.bins) == 5000
    edges = [one.low for one in found.bins] + [found.bins[-1].high]
    assert edges == sorted(set(edges))
    if whole:
        assert found.bins[0].low == 0.0 and all(edge == int(edge) for edge in edges)


def test_zero_times_and_negative_values_stay_linear() -> None:
    assert choose_scale([0.0, 1.0, 1.0, 900.0]).kind == "linear"
    assert choose_scale([-1.0, 1.0, 1.0, 900.0], whole=True).kind == "linear"
    assert choose_scale([]).kind == "linear"


def test_no_values() -> None:
    found = compute_histogram([np.nan])
    assert found.count == 0 and found.bins == ()
