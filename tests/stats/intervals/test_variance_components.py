"""Variance components: known variances are recovered from simulated scores, and what cannot be separated is named."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals.variance_components import split_variance


@pytest.mark.parametrize("seeds", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 2]], ids=["balanced", "unbalanced"])
def test_known_variances_are_recovered(seeds: list[int]) -> None:
    random = np.random.default_rng(7)
    documents, attempts, samples = 4000, len(seeds), 2
    task = random.normal(0, 1.0, (documents, 1, 1))
    user = random.normal(0, 0.7, (documents, 3, 1))[:, seeds]
    agent = random.normal(0, 0.5, (documents, attempts, 1))
    judge = random.normal(0, 0.4, (documents, attempts, samples))
    judged = task + user + agent + judge
    found = split_variance(
        judged.mean(axis=2), user_seeds=seeds, judge_samples=judged, has_user=True, has_judge=True
    )
    assert found.task == pytest.approx(1.0, rel=0.08)
    assert found.user == pytest.approx(0.49, rel=0.08)
    assert found.agent == pytest.approx(0.25, rel=0.08)
    assert found.judge == pytest.approx(0.16, rel=0.08)
    assert found.total == pytest.approx(1.9, rel=0.08) and not found.includes


def test_what_no_level_repeats_is_part_of_the_agent() -> None:
    scores = [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    found = split_variance(scores, has_user=True, has_judge=True)
    assert found.user is None and found.judge is None
    assert found.includes == {"user": "agent", "judge": "agent"}
    assert found.agent == pytest.approx(np.var(scores, axis=1, ddof=1).mean())


def test_one_seed_per_attempt_does_not_separate_the_user() -> None:
    found = split_variance([[1, 0], [0, 0]], user_seeds=[0, 1], has_user=True)
    assert found.user is None and found.includes == {"user": "agent"}


def test_a_single_document_has_no_variance_between_tasks() -> None:
    assert split_variance([[1, 0, 1]]).task is None


def test_one_attempt_cannot_be_split() -> None:
    with pytest.raises(AssayError, match="two attempts"):
        split_variance([[1], [0]])
