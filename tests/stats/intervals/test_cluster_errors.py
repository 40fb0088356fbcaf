from __future__ import annotations

import math
import random

import pytest

from assay.stats.intervals.cluster_errors import (
    compute_lmms_eval_cluster_error,
    compute_plain_error,
    extract_scores,
)


def by_pairs(scores: list[float], clusters: list[str]) -> float:
    """Equation 4 of Miller (2024), word for word."""
    count = len(scores)
    middle = sum(scores) / count
    independent = sum((score - middle) ** 2 for score in scores) / (count - 1) / count
    shared = sum(
        (scores[i] - middle) * (scores[j] - middle)
        for i in range(count)
        for j in range(count)
        if i != j and clusters[i] == clusters[j]
    )
    return math.sqrt(independent + shared / count**2)


@pytest.mark.parametrize("seed", range(5))
def test_the_clustered_error_is_that_of_the_paper(seed: int) -> None:
    draw = random.Random(seed)
    scores = [float(draw.randint(0, 1)) for _ in range(30)]
    clusters = [draw.choice("abcdef") for _ in range(30)]
    assert compute_lmms_eval_cluster_error(scores, clusters) == pytest.approx(by_pairs(scores, clusters))


def test_one_document_per_cluster_is_the_plain_error() -> None:
    scores = [1.0, 0.0, 0.0, 1.0, 1.0]
    assert compute_lmms_eval_cluster_error(scores, list("abcde")) == pytest.approx(
        compute_plain_error(scores)
    )


@pytest.mark.parametrize("clusters", [["a", "a"], [None, None], ["a", None]])
def test_there_is_no_clustered_error_of_one_cluster(clusters: list[str | None]) -> None:
    assert compute_lmms_eval_cluster_error([1.0, 0.0], clusters) is None


def test_one_document_has_no_error() -> None:
    assert compute_plain_error([1.0]) is None
    assert compute_lmms_eval_cluster_error([1.0], ["a"]) is None


def test_scores_come_from_numbers_and_from_mappings() -> None:
    values = [1, {"correct": 0.5, "video": "a"}, {"other": 1}, "text", True]
    found = extract_scores(values, score_key="correct", cluster_key="video")
    assert found == ([1, 0.5, True], [None, "a", None])
