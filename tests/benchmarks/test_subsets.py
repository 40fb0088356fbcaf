"""The measurement of subsets."""

from __future__ import annotations

import math

import numpy as np
from benchmarks.subsets import (
    HEADING,
    Dataset,
    NgramModel,
    format_row,
    measure_dataset,
    read_rows,
    simulate_models,
)


def test_held_out_models_are_covered_and_a_useful_history_saves_documents() -> None:
    dataset = simulate_models("few", models=10, documents=300, seed=1, graded=True)
    row = measure_dataset(dataset, 50, samples=20)
    assert row.models == 10 and row.coverage > 0.9
    assert row.gain > 1.0 and row.forecast > 1.0
    line = format_row(row, 20)
    assert line.startswith("| few | 300 | 50 | 20 | 10 of 10 |")
    assert read_rows(f"{HEADING}{line}\n") == {("few", "50"): line}


def test_rows_of_a_model_are_held_out_together_and_missing_answers_are_left_out() -> None:
    scores = simulate_models("", models=4, documents=120, seed=1).scores
    scores[0, :20] = math.nan
    twice = Dataset(name="twice", scores=np.repeat(scores, 2, axis=0), names=tuple("aabbccdd"), tested=(0, 2))
    row = measure_dataset(twice, 50, samples=5)
    assert row.models == 2 and row.gain < 1.5  # with the other row of the same model, the gain would be large


def test_ngram_models_prefer_what_they_were_trained_on() -> None:
    model = NgramModel("the cat sat on the mat. " * 20, 3)
    assert model.score("the cat ", "sat") > model.score("the cat ", "xqz")


def test_models_like_no_other_are_covered_without_a_gain() -> None:
    dataset = simulate_models("odd", models=10, documents=300, seed=2, odd="random")
    row = measure_dataset(dataset, 50, samples=20)
    assert row.models == 6 and row.coverage > 0.9
    assert 0.8 < row.gain < 1.15
