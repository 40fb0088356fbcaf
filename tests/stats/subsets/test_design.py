"""Sampling designs from the scores of other models."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.stats.subsets.design import (
    build_design,
    choose_design,
    draw_documents,
    forecast_gain,
    simple_design,
)

Floats = NDArray[np.float64]


def simulate(models: int, documents: int, *, noise: float = 0.0, seed: int = 0) -> Floats:
    """Scores of models with different abilities; with noise 1 the documents are alike for all."""
    draw = np.random.default_rng(seed)
    difficulty = draw.normal(0, 2 * (1 - noise), documents)
    shares = 1 / (1 + np.exp(difficulty - draw.normal(0, 1, (models, 1))))
    return (draw.random((models, documents)) < shares).astype(float)


def test_every_document_belongs_to_one_stratum_and_can_be_drawn() -> None:
    design = build_design(simulate(8, 300), 60)
    listed = np.sort(np.concatenate(design.strata))
    assert listed.tolist() == list(range(300))
    assert design.sampled == 60
    assert min(design.counts) >= 2
    rates = [count / len(stratum) for stratum, count in zip(design.strata, design.counts, strict=True)]
    assert max(rates) / min(rates) < 4


def test_strata_separate_easy_from_hard_documents() -> None:
    table = np.repeat([[0.0, 1.0]], 5, axis=0).repeat(100, axis=1)
    table[0, 50] = 1.0
    design = build_design(table, 40)
    means = [float(table[:, stratum].mean()) for stratum in design.strata]
    assert means == sorted(means)
    assert means[0] < 0.1 and means[-1] == 1.0


def test_the_weighted_mean_has_no_bias_whatever_the_new_model_does() -> None:
    history = simulate(8, 200)
    scores = 1 - simulate(1, 200, seed=5)[0]  # fails where the others succeed
    design = build_design(history, 40)
    means = []
    for number in range(400):
        drawn = draw_documents(design, f"{number}")
        means.append(
            sum(
                len(stratum) / 200 * scores[chosen].mean()
                for stratum, chosen in zip(design.strata, drawn, strict=True)
            )
        )
    error = design.compute_variance(scores) ** 0.5
    assert abs(np.mean(means) - scores.mean()) < 4 * error / 20
    assert np.std(means) == pytest.approx(error, rel=0.15)


def test_the_draw_depends_only_on_the_seed() -> None:
    design = build_design(simulate(8, 200), 40)
    assert draw_documents(design, "1 task") == draw_documents(design, "1 task")
    assert draw_documents(design, "1 task") != draw_documents(design, "2 task")
    assert all(
        len(set(one)) == count for one, count in zip(draw_documents(design, "1"), design.counts, strict=True)
    )


def test_a_history_that_predicts_the_scores_pays() -> None:
    design, forecast = choose_design(simulate(12, 400), 60)
    assert forecast is not None and forecast.pays and forecast.median > 1.2
    assert design.is_stratified


def test_a_history_that_says_nothing_falls_back_to_simple_sampling() -> None:
    design, forecast = choose_design(simulate(12, 400, noise=1.0), 60)
    assert forecast is not None and not forecast.pays
    assert not design.is_stratified and design.sampled == 60


@pytest.mark.parametrize("names", [["a", "b"], ["a", "a", "b"]], ids=["two models", "two runs of one model"])
def test_fewer_than_three_models_are_no_history(names: list[str]) -> None:
    design, forecast = choose_design(simulate(len(names), 200), 40, names)
    assert forecast is None and not design.is_stratified


def test_runs_of_one_model_are_held_out_together() -> None:
    random = np.random.default_rng(3).integers(0, 2, 300).astype(float)
    table = np.array([random, random, np.ones(300), np.ones(300)])  # models with equal scores have no gain
    leaky = forecast_gain(table, 60)
    honest = forecast_gain(table, 60, ["a", "a", "b", "c"])
    assert leaky.median > 2 > 1.1 > honest.median


def test_missing_scores_are_filled_with_those_of_other_models() -> None:
    table = simulate(8, 200)
    gaps = table.copy()
    gaps[0, :20] = np.nan
    gaps[:, 0] = np.nan
    design = build_design(gaps, 40)
    assert design.documents == 200 and design.sampled == 40


def test_a_budget_of_all_documents_needs_no_strata() -> None:
    design = build_design(simulate(8, 30), 50)
    assert design.sampled == 30 and design.compute_variance(np.arange(30.0)) == 0.0


def test_the_variance_is_that_of_sampling_without_replacement() -> None:
    scores = np.array([0.0, 0.0, 1.0, 1.0])
    assert simple_design(4, 2).compute_variance(scores) == pytest.approx(1 / 12)


def test_no_history_is_an_error() -> None:
    with pytest.raises(AssayError, match="at least two models"):
        forecast_gain([[1.0, 0.0]], 1)
    with pytest.raises(AssayError, match="no scores"):
        build_design(np.zeros((0, 4)), 2)
