"""The measurement of subsets."""

from __future__ import annotations

from benchmarks.subsets import measure_dataset, simulate_models, write_table


def test_held_out_models_are_covered_and_a_useful_history_saves_documents() -> None:
    dataset = simulate_models("few", models=10, documents=300, seed=1, graded=True)
    row = measure_dataset(dataset, 50, samples=20)
    assert row.models == 10 and row.coverage > 0.9
    assert row.gain > 1.0 and row.forecast > 1.0
    assert "| few | 300 | 50 |" in write_table([row], 20, 1.0)


def test_models_like_no_other_are_covered_without_a_gain() -> None:
    dataset = simulate_models("odd", models=10, documents=300, seed=2, odd="random")
    row = measure_dataset(dataset, 50, samples=20)
    assert row.models == 6 and row.coverage > 0.9
    assert 0.8 < row.gain < 1.15
