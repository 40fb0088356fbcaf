from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.item_analysis import analyse_items, measure_position_bias


def simulate_scores(models: int, documents: int, wrong: int) -> np.ndarray:
    """Scores of models of rising strength; the first documents have a wrong key."""
    draw = np.random.default_rng(1)
    strength, hard = np.linspace(-2, 2, models), draw.normal(size=documents)
    chance = 1 / (1 + np.exp(-2 * (strength[:, None] - hard[None, :])))
    chance[:, :wrong] = 1 - chance[:, :wrong]
    return (draw.random((models, documents)) < chance).astype(float)


def test_documents_with_a_wrong_key_stand_out() -> None:
    table = simulate_scores(30, 200, 6)
    found = analyse_items(table)
    assert set(range(6)) <= set(found.negative.tolist())
    assert len(found.negative) <= 9


def test_discrimination_is_the_correlation_with_all_other_documents() -> None:
    table = simulate_scores(12, 40, 2)
    found = analyse_items(table)
    for at in (0, 7, 20):
        rest = np.delete(table, at, axis=1).mean(axis=1)
        if table[:, at].std() > 0:
            assert found.discrimination[at] == pytest.approx(np.corrcoef(table[:, at], rest)[0, 1])


def test_documents_that_are_never_or_always_right_are_found() -> None:
    found = analyse_items([[0, 1, 1], [0, 1, 0], [0, 1, 1]])
    assert found.never.tolist() == [0]
    assert found.always.tolist() == [1]
    assert found.negative.tolist() == []


def test_one_model_says_nothing_about_documents() -> None:
    with pytest.raises(AssayError, match="two models"):
        analyse_items([[1, 0, 1]])


def test_a_model_that_likes_one_place_is_seen_and_a_fair_one_is_not() -> None:
    draw = np.random.default_rng(2)
    keys = draw.integers(0, 4, size=400)
    fair = np.where(draw.random(400) < 0.5, keys, draw.integers(0, 4, size=400))
    first = np.where(draw.random(400) < 0.3, 0, fair)
    assert measure_position_bias(fair, keys, 4)[2] > 0.05
    assert measure_position_bias(first, keys, 4)[2] < 1e-4
