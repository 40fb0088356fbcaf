from __future__ import annotations

import itertools
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals.repeats import (
    analyse_repeats,
    compute_consistency,
    majority_at_k,
    pass_at_k,
    pass_hat_k,
)

TABLE = [[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 1]]


def over_subsets(row: list[int], k: int, value: Callable[[tuple[int, ...]], float]) -> float:
    """The mean of something over every way to choose k answers: what the formulas shorten."""
    return mean(float(value(chosen)) for chosen in itertools.combinations(row, k))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_numbers_of_k_answers_are_means_over_all_choices_of_k(k: int) -> None:
    def majority(chosen: tuple[int, ...]) -> float:
        return 1.0 if 2 * sum(chosen) > k else 0.5 if 2 * sum(chosen) == k else 0.0

    rules: list[tuple[Callable[..., Any], Callable[[tuple[int, ...]], float]]] = [
        (pass_at_k, any),
        (pass_hat_k, all),
        (majority_at_k, majority),
    ]
    for ours, value in rules:
        assert list(ours(TABLE, k)) == pytest.approx([over_subsets(row, k, value) for row in TABLE])


def test_two_answers_agree_as_often_as_counting_says() -> None:
    table = [["a", "b", "a"], ["c", "c", "c"], ["x", "y", "z"]]
    wanted = [mean(one == other for one, other in itertools.combinations(row, 2)) for row in table]
    assert list(compute_consistency(table)) == pytest.approx(wanted)


def test_variance_components_are_those_of_an_analysis_of_variance() -> None:
    draw = np.random.default_rng(1)
    chance = draw.uniform(0.2, 0.8, size=4000)
    table = (draw.random((4000, 5)) < chance[:, None]).astype(float)
    found = analyse_repeats(table)
    assert found.between == pytest.approx(0.6**2 / 12, rel=0.1)
    assert found.within == pytest.approx((chance * (1 - chance)).mean(), rel=0.03)
    assert found.stderr == pytest.approx(((found.between + found.within / 5) / 4000) ** 0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: pass_at_k([[1, 0]], 3), "k is 3"),
        (lambda: pass_at_k([[0.5, 0]], 1), "right or wrong"),
        (lambda: analyse_repeats([1, 0]), "table"),
        (lambda: compute_consistency([["a"]]), "two answers"),
    ],
)
def test_invalid_arguments_are_rejected(wrong: object, said: str) -> None:
    with pytest.raises(AssayError, match=said):
        wrong()  # type: ignore[operator]
