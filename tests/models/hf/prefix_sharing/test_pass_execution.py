"""Prefix sharing scores random trees like unshared computation and is turned off for models without support."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.models.hf.batch_budget import BatchBudget
from assay.models.hf.prefix_sharing.check import can_share_prefixes
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.text.scoring import ScoredPair, plan_scoring, score_shared, score_unshared
from assay.models.tokens import Pair

pytestmark = pytest.mark.torch
ROWS = 10_000


def load(kind: str, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_checkpoint(kind), **options).eval()


def score_with_sharing(
    pairs: list[Pair], runner: ModelRunner, budget: BatchBudget, rows: int = ROWS
) -> list[ScoredPair]:
    return list(score_shared(pairs, plan_scoring(pairs, runner, budget, max_logit_rows=rows), runner))


def make_random_pairs(seed: int) -> list[Pair]:
    """Return pairs with few-shot prefixes of several lengths, contexts that share prefixes, choices and repeats."""
    draw = random.Random(seed)

    def tokens(low: int, high: int, kinds: int = 300) -> list[int]:
        return [draw.randrange(kinds) for _ in range(draw.randint(low, high))]

    pairs = []
    for prefix in ([], tokens(60, 90), tokens(1, 3)):
        for _ in range(4):
            context = prefix + tokens(1, 12, 2) + tokens(1, 30)
            pairs += [Pair(context, tokens(1, 8)) for _ in range(3)]
            pairs.append(Pair(context + pairs[-1].continuation[:2], tokens(1, 2)))
    return [*pairs, *draw.choices(pairs, k=5)]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_random_trees_score_like_unshared_sequences(kind: str) -> None:
    runner = ModelRunner(load(kind))
    for seed in range(3):
        pairs = make_random_pairs(seed)
        unshared = {index: rest for index, *rest in score_unshared(pairs, runner, BatchBudget(2000))}
        for size in (16, 100, 4096):
            shared = {
                index: rest for index, *rest in score_with_sharing(pairs, runner, BatchBudget(size), rows=40)
            }
            assert set(shared) == set(unshared) == set(range(len(pairs)))
            assert max(abs(shared[at][0] - unshared[at][0]) for at in unshared) < 1e-4
            assert all(shared[at][1] == unshared[at][1] for at in unshared)


def test_no_shared_token_is_computed_twice() -> None:
    runner = CountingRunner(load("llama"))
    prefix = list(range(100))
    pairs = [Pair([*prefix, 200 + at], [at, at + 1]) for at in range(50)]
    score_with_sharing(pairs, runner, BatchBudget(64))
    assert runner.tokens == 100 + 50 * 2


class CountingRunner(ModelRunner):
    """Counts the tokens of its inputs."""

    tokens = 0

    def forward(self, *, wanted: Any = None, **inputs: Any) -> Any:
        self.tokens += inputs["input_ids"].numel()
        return super().forward(wanted=wanted, **inputs)


class SmallMemoryRunner(ModelRunner):
    """A device with little memory: passes of more than a few tokens do not fit."""

    most = 20
    refused = 0

    def forward(self, *, wanted: Any = None, **inputs: Any) -> Any:
        if inputs["input_ids"].numel() > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(wanted=wanted, **inputs)


def test_out_of_memory_halves_the_budget_without_losing_scores() -> None:
    model = load("llama")
    pairs = make_random_pairs(1)
    unshared = {
        index: total for index, total, _ in score_unshared(pairs, ModelRunner(model), BatchBudget(2000))
    }
    small = SmallMemoryRunner(model)
    found = {
        index: total for index, total, _ in score_with_sharing(pairs, small, BatchBudget(512, minimum=4))
    }
    assert small.refused > 0
    assert max(abs(found[at] - unshared[at]) for at in unshared) < 1e-4


def test_insufficient_memory_is_an_error_not_a_loop() -> None:
    small = SmallMemoryRunner(load("llama"))
    small.most = 0
    with pytest.raises(torch.OutOfMemoryError):
        score_with_sharing(make_random_pairs(1), small, BatchBudget(64))


@pytest.mark.parametrize(
    ("kind", "expected"), [("llama", True), ("gpt2", True), ("mistral", False), ("mamba", False)]
)
def test_models_without_prefix_sharing_are_detected(kind: str, expected: bool) -> None:
    assert can_share_prefixes(ModelRunner(load(kind)), 512) is expected


def test_mixed_precision_shares_prefixes() -> None:
    """It rounds as the smaller type does, so its logits differ by more than those of float32."""
    assert can_share_prefixes(ModelRunner(load("llama"), autocast_dtype=torch.bfloat16), 512)


def test_a_sliding_window_longer_than_the_context_allows_prefix_sharing() -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_checkpoint("mistral", sliding_window=4096)
    assert can_share_prefixes(ModelRunner(AutoModelForCausalLM.from_pretrained(folder).eval()), 512)


def test_a_model_that_ignores_the_mask_is_detected() -> None:
    class MaskIgnoringRunner(ModelRunner):
        def forward(self, *, wanted: Any = None, **inputs: Any) -> Any:
            return super().forward(wanted=wanted, **{**inputs, "attention_mask": None})

    assert not can_share_prefixes(MaskIgnoringRunner(load("llama")), 512)


def test_logits_are_computed_only_where_needed() -> None:
    runner = ModelRunner(load("llama"))
    output = runner.forward(input_ids=torch.arange(20)[None], use_cache=False, wanted=np.array([3, 19]))
    whole = runner.forward(input_ids=torch.arange(20)[None], use_cache=False)
    assert output.logits.shape[1] == 2
    assert torch.allclose(output.logits[0], whole.logits[0, [3, 19]], atol=1e-5)
