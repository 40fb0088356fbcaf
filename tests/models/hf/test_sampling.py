"""Selection of the next token from logits."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

import torch

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.models.hf.sampling import SamplingSettings, argmax_tokens, sample_tokens, sampling_from_request

pytestmark = pytest.mark.torch
LOGITS = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
GREEDY = SamplingSettings()


def sample(settings: SamplingSettings, count: int = 400) -> set[int]:
    generator = random.Random(0)
    return {sample_tokens(LOGITS, [settings], [generator])[0] for _ in range(count)}


def test_greedy_selects_the_first_of_the_most_likely_tokens() -> None:
    tied = torch.tensor([[1.0, 2.0, 2.0], [5.0, 0.0, 5.0]])
    assert argmax_tokens(tied).tolist() == [1, 0]
    assert sample_tokens(tied, [GREEDY, GREEDY], [None, None]) == [1, 0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SamplingSettings(temperature=5.0), {0, 1, 2, 3}),
        (SamplingSettings(temperature=5.0, top_k=2), {1, 3}),
        (SamplingSettings(temperature=1.0, top_p=0.5), {1}),
        (SamplingSettings(temperature=1.0, min_p=0.2), {1, 3}),
    ],
)
def test_limits_remove_unlikely_tokens(settings: SamplingSettings, expected: set[int]) -> None:
    assert sample(settings) == expected


def test_the_sample_of_a_row_does_not_depend_on_the_other_rows() -> None:
    settings = SamplingSettings(temperature=2.0)
    alone = sample_tokens(LOGITS, [settings], [random.Random(3)])
    rows = sample_tokens(
        LOGITS.repeat(3, 1), [GREEDY, settings, settings], [None, random.Random(3), random.Random(4)]
    )
    assert rows[0] == 1 and rows[1:2] == alone


def test_the_request_overrides_the_generation_config() -> None:
    class Defaults:
        top_k, top_p, min_p = 7, 0.9, None

    def read(**values: object) -> SamplingSettings:
        request = Generate(task="t", document=0, prompt=Prompt.of_text("a"), settings=Settings(values))
        return sampling_from_request(request, Defaults())

    assert read() == GREEDY
    sampled = read(do_sample=True, temperature=0.5, top_k=3)
    assert (sampled.temperature, sampled.top_k, sampled.top_p, sampled.min_p) == (0.5, 3, 0.9, 0.0)
