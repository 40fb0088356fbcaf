"""Wrong answer keys: documents whose key the models contradict in the way in which they usually agree with keys.

Each document has a difficulty, each model an ability (Rasch model). A model that misses the true answer gives any other one;
models share mistakes, so equal wrong answers are expected to some degree (Pólya urn). For each answer of the models, the
posterior probability that it is the true one follows from abilities and answers. If strong models agree on an answer and weak
ones scatter, the key is probably wrong; if strong and weak ones share a wrong answer, the document is hard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

__all__ = ["MIN_DOUBT", "KeyDoubt", "doubt_key", "estimate_abilities"]

Floats = NDArray[np.float64]

_DIFFICULTY_SPREAD = 1.5
"""Standard deviation of difficulties, in logits."""

_GRID = np.linspace(-4 * _DIFFICULTY_SPREAD, 4 * _DIFFICULTY_SPREAD, 49)
_SCALE = float(np.sqrt(1 + np.pi / 8 * _DIFFICULTY_SPREAD**2))
"""Abilities are wider than accuracies, which average over difficulties."""

_CONCENTRATION = 1.0
"""Of the urn for each answer: the smaller, the more wrong answers coincide."""

WRONG_KEY_RATE = 0.03
"""Share of wrong keys that is assumed before the models are seen."""

MIN_DOUBT = 0.4
"""Probability from which a key is reported. `benchmarks/decision_errors.py` measures precision and recall on planted errors."""

_OPEN_ANSWERS = 20
"""Number of answers that is assumed if there are no choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDoubt:
    """How probable it is that the key of a document is wrong, and the answer that is probably right."""

    probability: float
    answer: Hashable
    supporters: int
    """The number of models that give this answer."""


def estimate_abilities(scores: ArrayLike) -> Floats:
    """Return the ability of each model in logits, from scores between 0 and 1 with a row per model.

    >>> [round(float(one), 1) for one in estimate_abilities([[1, 1, 1, 0], [1, 0, 0, 0]])]
    [1.2, -1.2]
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise AssayError("abilities need the scores of at least one document")
    shares = (table.sum(axis=1) + 0.5) / (table.shape[1] + 1)
    found: Floats = _SCALE * np.log(shares / (1 - shares))
    return found


def doubt_key(
    answers: Sequence[Hashable], key: Hashable, abilities: Floats, *, choices: int | None = None
) -> KeyDoubt:
    """Return how probable it is that the key of a document is wrong, from the answers of all models.

    `choices` is the number of possible answers; None for open questions.

    >>> strong, weak = [2.0, 1.5, 1.0], [-1.0]
    >>> doubt_key(["b", "b", "b", "a"], "a", np.array(strong + weak), choices=4).probability > 0.5
    True
    """
    count = max(choices or _OPEN_ANSWERS, 2)
    given = dict.fromkeys(answers)
    weights = {}
    for answer in dict.fromkeys((key, *given)):
        prior = 1 - WRONG_KEY_RATE if answer == key else WRONG_KEY_RATE / (count - 1)
        weights[answer] = log(prior) + _compute_log_likelihood(answers, answer, abilities, count)
    highest = max(weights.values())
    shares = {answer: exp(weight - highest) for answer, weight in weights.items()}
    total = sum(shares.values())
    others = {answer: share for answer, share in shares.items() if answer != key}
    best = max(others, key=lambda answer: others[answer], default=key)
    return KeyDoubt(
        probability=1 - shares[key] / total, answer=best, supporters=sum(answer == best for answer in answers)
    )


def _compute_log_likelihood(
    answers: Sequence[Hashable], true: Hashable, abilities: Floats, count: int
) -> float:
    """Return the log likelihood of the answers if `true` is the right one, averaged over difficulties."""
    right = np.array([answer == true for answer in answers])
    logits = abilities[:, None] - _GRID[None, :]
    chances = np.where(right[:, None], -np.logaddexp(0, -logits), -np.logaddexp(0, logits)).sum(axis=0)
    prior = np.exp(-0.5 * (_GRID / _DIFFICULTY_SPREAD) ** 2)
    peak = float(chances.max())
    mixed = peak + log(float((np.exp(chances - peak) * prior).sum() / prior.sum()))
    wrong = Counter(answer for answer in answers if answer != true)
    size, total = _CONCENTRATION, _CONCENTRATION * (count - 1)
    urn = lgamma(total) - lgamma(total + sum(wrong.values()))
    urn += sum(lgamma(size + number) - lgamma(size) for number in wrong.values())
    return mixed + urn
