"""Computing the output layer apart from the other layers gives the same scores, and is not done where it would not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.prefix_sharing.test_pass_execution import load, make_random_pairs, score_with_sharing

from assay.models.hf.batch_budget import BatchBudget
from assay.models.hf.prefix_sharing import model_runner
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.text.scoring import score_unshared

pytestmark = pytest.mark.torch

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 340,
}


def make_model(name: str, **settings: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_few_logits_at_a_time_give_the_same_scores(
    kind: str, autocast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = make_random_pairs(0)
    runner = ModelRunner(load(kind), autocast_dtype=autocast)
    whole = sorted(score_with_sharing(pairs, runner, BatchBudget(200)))
    runner.separate_head()
    assert runner.separates_head
    monkeypatch.setattr(model_runner, "_MAX_LOGITS_ON_CPU", 5 * runner.model.config.vocab_size)
    sizes: list[int] = []
    compute_logits = runner.compute_logits

    def record_size(states: Any) -> Any:
        sizes.append(len(states))
        return compute_logits(states)

    monkeypatch.setattr(runner, "compute_logits", record_size)
    for (index, total, greedy), expected in zip(
        sorted(score_with_sharing(pairs, runner, BatchBudget(200))), whole, strict=True
    ):
        assert (index, greedy) == (expected[0], expected[2])
        assert total == pytest.approx(expected[1], rel=1e-5)
    assert max(sizes) == 5


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Granite", {"logits_scaling": 3.0}),
        ("Cohere", {"logit_scale": 0.25}),
        ("Gemma2", {"final_logit_softcapping": 0.5, "sliding_window": 4096, "head_dim": 8}),
    ],
)
def test_the_output_layer_is_not_separated_if_the_model_changes_its_logits(
    name: str, settings: dict[str, Any]
) -> None:
    runner = ModelRunner(make_model(name, **settings))
    runner.separate_head()
    assert not runner.separates_head
    pairs = make_random_pairs(1)
    unshared = {index: total for index, total, _ in score_unshared(pairs, runner, BatchBudget(2000))}
    for index, total, _ in score_with_sharing(pairs, runner, BatchBudget(100)):
        assert total == pytest.approx(unshared[index], rel=1e-3, abs=1e-3)


def test_the_output_layer_is_not_separated_if_the_model_names_none() -> None:
    runner = ModelRunner(load("llama"))
    runner.model.get_output_embeddings = lambda: None
    runner.separate_head()
    assert not runner.separates_head
