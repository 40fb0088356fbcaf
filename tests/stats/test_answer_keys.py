"""Wrong answer keys are found from the answers of several models."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.answer_keys import MIN_DOUBT, doubt_key, estimate_abilities


def simulate(models: int, documents: int = 500, choices: int = 4, *, seed: int = 1) -> tuple[np.ndarray, ...]:
    """Return answers, keys and which keys are wrong (3 %), for models that share half of their mistakes."""
    draw = np.random.default_rng(seed)
    abilities = np.linspace(0.3, 2.7, models)
    difficulties = draw.normal(0, 1.5, documents)
    truth = draw.integers(0, choices, documents)
    wrong = draw.random(documents) < 0.03
    keys = np.where(wrong, (truth + draw.integers(1, choices, documents)) % choices, truth)
    tempting = (truth + draw.integers(1, choices, documents)) % choices
    answers = np.empty((models, documents), dtype=int)
    for model, ability in enumerate(abilities):
        knows = draw.random(documents) < 1 / (1 + np.exp(difficulties - ability))
        other = (truth + draw.integers(1, choices, documents)) % choices
        answers[model] = np.where(knows, truth, np.where(draw.random(documents) < 0.5, tempting, other))
    return answers, keys, wrong


@pytest.mark.parametrize(
    ("models", "precision", "recall"), [(4, 0.45, 0.3), (8, 0.65, 0.5), (16, 0.75, 0.65)]
)
def test_planted_errors_are_found(models: int, precision: float, recall: float) -> None:
    answers, keys, wrong = simulate(models, documents=1000)
    abilities = estimate_abilities(answers == keys)
    found = np.array(
        [
            doubt_key(answers[:, at].tolist(), int(keys[at]), abilities, choices=4).probability > MIN_DOUBT
            for at in range(len(keys))
        ]
    )
    hits = int((found & wrong).sum())
    assert hits / max(int(found.sum()), 1) >= precision
    assert hits / int(wrong.sum()) >= recall


def test_a_wrong_answer_that_weak_models_share_is_no_wrong_key() -> None:
    abilities = np.array([3.0, 2.5, 2.0, -2.0, -2.0, -2.0, -2.0])
    assert doubt_key(["a", "a", "a", "b", "b", "b", "b"], "a", abilities, choices=4).probability < 0.05
    doubt = doubt_key(["b", "b", "b", "a", "c", "d", "a"], "a", abilities, choices=4)
    assert doubt.probability > 0.5 and doubt.answer == "b" and doubt.supporters == 3


def test_abilities_need_documents() -> None:
    with pytest.raises(AssayError, match="at least one document"):
        estimate_abilities(np.empty((3, 0)))
