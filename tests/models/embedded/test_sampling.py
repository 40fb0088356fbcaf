from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from assay.models.embedded.sampling import TokenSampler, log_softmax, make_generator

LOGITS = np.array([1.0, 3.0, 2.0, -1.0], dtype=np.float32)


def count_samples(sampler: TokenSampler, count: int = 2000) -> Counter[int]:
    generator = make_generator(1, "prompt", 0)
    return Counter(sampler.sample(LOGITS, generator) for _ in range(count))


def test_temperature_zero_selects_the_most_likely_token() -> None:
    assert count_samples(TokenSampler(temperature=0)) == {1: 2000}


def test_samples_follow_the_probabilities() -> None:
    found = count_samples(TokenSampler(temperature=1.0))
    for token, chance in enumerate(np.exp(log_softmax(LOGITS))):
        assert found[token] / 2000 == pytest.approx(chance, abs=0.04)


def test_top_k_keeps_the_k_most_likely() -> None:
    assert set(count_samples(TokenSampler(temperature=5.0, top_k=2))) == {1, 2}


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    assert set(count_samples(TokenSampler(temperature=1.0, top_p=0.5))) == {1}
    assert set(count_samples(TokenSampler(temperature=1.0, top_p=0.8))) == {1, 2}


def test_a_higher_temperature_spreads_the_samples() -> None:
    assert count_samples(TokenSampler(temperature=0.3))[1] > count_samples(TokenSampler(temperature=3.0))[1]


@pytest.mark.parametrize("other", [(2, "prompt", 0), (1, "other", 0), (1, "prompt", 1)])
def test_the_generator_depends_on_seed_prompt_and_repeat_alone(other: tuple[int, str, int]) -> None:
    assert make_generator(1, "prompt", 0).random() == make_generator(1, "prompt", 0).random()
    assert make_generator(1, "prompt", 0).random() != make_generator(*other).random()
