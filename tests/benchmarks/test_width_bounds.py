from __future__ import annotations

import numpy as np
import pytest
from benchmarks.width_bounds import GAMMA, LOGNORMAL, describe_limited_shapes, find_bound


def draw_shapes() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    draw = np.random.default_rng(1)
    return np.concatenate([family.draw(draw, (1000, 5)) for family in (GAMMA, LOGNORMAL)])


def test_the_bound_of_one_family_is_the_width_of_its_shortest_interval() -> None:
    """With a known shape, the mean of gamma scores divided by that of the sample is 20 / G for G of a gamma distribution of shape 20."""
    found = find_bound(describe_limited_shapes((GAMMA, LOGNORMAL), draw_shapes()), (0.9, 0.0))
    ratios = np.sort(20 / np.random.default_rng(2).gamma(20, 1, 200_000))
    inside = int(0.9 * len(ratios))
    shortest = float((ratios[inside:] - ratios[:-inside]).min()) * GAMMA.mean
    assert found.width == pytest.approx(shortest, abs=3 * found.error + 0.02)
    assert found.multipliers[1] < 0.01


def test_a_second_family_makes_intervals_wider_but_no_bound_exceeds_one_that_covers_both() -> None:
    shapes = describe_limited_shapes((GAMMA, LOGNORMAL), draw_shapes())
    alone, both = find_bound(shapes, (0.9, 0.0)), find_bound(shapes, (0.9, 0.9))
    assert both.width > alone.width + 3 * (both.error + alone.error)
    samples = GAMMA.draw(np.random.default_rng(3), (4000, 5))
    wide = np.stack([samples.mean(axis=1) / 3, samples.mean(axis=1) * 4])
    lognormal = LOGNORMAL.draw(np.random.default_rng(4), (4000, 5)).mean(axis=1)
    assert np.mean((lognormal / 3 < LOGNORMAL.mean) & (lognormal * 4 > LOGNORMAL.mean)) > 0.9
    assert both.width < (wide[1] - wide[0]).mean()
