"""Paired comparisons over documents and variants."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.comparison import compare_pairs
from assay.stats.comparisons.crossed_pairs import compare_crossed_pairs


def draw(seed: int, documents: int = 80, variants: int = 4, spread: float = 0.3) -> np.ndarray:
    generator = np.random.default_rng(seed)
    latent = (
        generator.normal(0, 1.5, (documents, 1))
        + generator.normal(0, spread, (1, variants))
        + generator.normal(0, 0.5, (documents, variants))
    )
    return (latent > 0).astype(float)


def test_one_improved_document_is_no_evidence() -> None:
    before = np.zeros((100, 3))
    after = before.copy()
    after[0] = 1
    found = compare_crossed_pairs(before, after)
    assert found.value == pytest.approx(0.01)
    assert found.interval.low < 0 < found.interval.high
    assert found.p_value == 1.0


def test_both_directions_have_the_same_interval_and_p_value() -> None:
    before = draw(1)
    after = np.maximum(before, draw(2) * (np.arange(80) % 3 == 0)[:, None])  # differences of 0 and 1 only
    up, down = compare_crossed_pairs(before, after), compare_crossed_pairs(after, before)
    assert up.p_value == pytest.approx(down.p_value)
    assert (up.interval.low, up.interval.high) == pytest.approx((-down.interval.high, -down.interval.low))


@pytest.mark.parametrize("sign", [1, -1])
def test_three_documents_cannot_have_a_small_p_value(sign: int) -> None:
    before, after = (np.zeros((3, 3)), np.eye(3))[::sign]  # every document changes by a third
    assert compare_crossed_pairs(before, after).p_value == pytest.approx(0.25)


def test_equal_prompts_have_the_interval_and_p_value_of_their_documents() -> None:
    before, after = draw(1, variants=1), draw(2, variants=1)
    found = compare_crossed_pairs(np.repeat(before, 3, axis=1), np.repeat(after, 3, axis=1))
    alone = compare_pairs(before[:, 0], after[:, 0])
    assert found.p_value == alone.p_value
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (alone.interval.low, alone.interval.high)
    )


def test_a_spread_between_prompts_raises_the_p_value() -> None:
    before = np.zeros((60, 3))
    even, uneven = before.copy(), before.copy()
    even[:12] = 1
    uneven[:36, 0] = 1  # the same difference, from one prompt
    same, other = compare_crossed_pairs(before, even), compare_crossed_pairs(before, uneven)
    assert same.value == pytest.approx(other.value)
    assert same.p_value < 0.001 and 0.3 < other.p_value < 1
    assert other.interval.low < 0 < same.interval.low


def test_whole_clusters_are_flipped() -> None:
    before = np.zeros((12, 2))
    after = np.ones((12, 2))
    clusters = [number // 4 for number in range(12)]
    assert compare_crossed_pairs(before, after).p_value < 0.001
    assert compare_crossed_pairs(before, after, clusters).p_value == 0.25


@pytest.mark.parametrize("wins", [5, 7, 16, 18])
def test_a_p_value_of_one_up_to_rounding_is_one(wins: int) -> None:
    before, after = np.zeros((2 * wins, 3)), np.zeros((2 * wins, 3))
    after[:wins, 0], before[wins:-1, 1] = 1, 1  # one more win than losses, by a third each
    assert compare_crossed_pairs(before, after).p_value == 1.0


def test_one_variant_is_refused() -> None:
    with pytest.raises(AssayError, match="two or more variants"):
        compare_crossed_pairs([[0.0], [1.0]], [[1.0], [1.0]])
