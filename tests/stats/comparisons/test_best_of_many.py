from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.best_of_many import find_best


def test_clear_winner_is_the_only_candidate() -> None:
    draw = np.random.default_rng(1)
    base = draw.random((5, 500)) < 0.5
    table = base.astype(float)
    table[3] = draw.random(500) < 0.8
    found = find_best(table)
    assert found is not None
    assert (found.index, found.candidates) == (3, (3,))
    assert found.confidence > 0.99


def test_equal_checkpoints_are_all_candidates() -> None:
    found = find_best(np.tile([1.0, 0.0, 1.0, 1.0], (3, 25)))
    assert found is not None
    assert found.candidates == (0, 1, 2)
    assert found.confidence == 0.0


def test_candidates_contain_the_best_of_equals_as_often_as_promised() -> None:
    draw = np.random.default_rng(2)
    hits = 0
    for _ in range(100):
        probabilities = draw.beta(2, 2, 80)
        found = find_best((draw.random((6, 80)) < probabilities).astype(float), draws=400)
        hits += found is not None and 0 in found.candidates
    assert hits >= 90  # 95 are expected; `benchmarks/checkpoint_alarms.py` measures it


def test_clusters_make_the_result_less_certain() -> None:
    draw = np.random.default_rng(3)
    table = np.repeat(draw.random((2, 10)) < [[0.3], [0.9]], 30, axis=1).astype(float)
    independent, clustered = find_best(table), find_best(table, [at // 30 for at in range(300)])
    assert independent is not None and clustered is not None
    assert clustered.confidence < independent.confidence


def test_documents_without_a_score_are_left_out() -> None:
    found = find_best([[1.0, np.nan, *[1.0] * 38], [0.0, 1.0, *[0.0] * 38]])
    assert found is not None
    assert (found.documents, found.index) == (39, 0)
    assert find_best([[np.nan, 1.0], [1.0, np.nan]]) is None


def test_one_row_is_the_best() -> None:
    found = find_best([[1.0, 0.0]])
    assert found is not None
    assert (found.index, found.confidence, found.candidates) == (0, 1.0, (0,))


def test_scores_need_rows() -> None:
    with pytest.raises(AssayError, match="row"):
        find_best([1.0, 2.0])


def test_an_incomplete_row_does_not_decide_for_the_others() -> None:
    scores = np.zeros((3, 100))
    scores[1, 10:] = 1.0
    scores[2] = 1.0
    scores[2, 10:] = np.nan
    found = find_best(scores)
    assert found is not None
    assert (found.index, found.candidates, found.left_out, found.documents) == (1, (1,), (2,), 100)
    assert np.isnan(found.p_values[2]) and found.confidence > 0.99
    scores[2, :97] = 0.0
    some = find_best(scores)
    assert some is not None and some.left_out == () and some.documents == 97
