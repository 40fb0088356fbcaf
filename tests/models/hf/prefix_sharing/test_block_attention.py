"""Block attention on a CPU equals the attention of transformers, and unsupported models are left unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.models.hf import HfModel
from assay.models.hf.prefix_sharing.block_attention import enable_block_attention
from assay.models.hf.text.backend import TextBackend

pytestmark = pytest.mark.torch


def load(kind: str, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_checkpoint(kind), **options).eval()


def test_padded_rows_generate_like_transformers() -> None:
    plain, taken = load("llama"), load("llama")
    assert taken.config.num_key_value_heads < taken.config.num_attention_heads
    assert enable_block_attention(taken)
    ids = torch.arange(40).reshape(2, 20)
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    options = {
        "max_new_tokens": 5,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    with torch.inference_mode():
        found = [model.generate(ids, attention_mask=mask, **options) for model in (plain, taken)]
    assert torch.equal(found[0].sequences, found[1].sequences)
    for one, other in zip(found[0].logits, found[1].logits, strict=True):
        assert (one - other).abs().max() < 1e-4


def test_a_model_that_changes_the_mask_computes_like_transformers() -> None:
    from transformers import AutoModelForSeq2SeqLM

    plain, taken = (AutoModelForSeq2SeqLM.from_pretrained(tiny_checkpoint("t5")).eval() for _ in range(2))
    assert enable_block_attention(taken)
    ids = torch.arange(24).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[0, 7:] = 0
    start = torch.zeros((2, 3), dtype=torch.long)
    with torch.inference_mode():
        one, other = (
            model(input_ids=ids, attention_mask=mask, decoder_input_ids=start).logits
            for model in (plain, taken)
        )
    assert (one - other).abs().max() < 1e-4


def test_another_attention_implementation_is_kept() -> None:
    model = load("llama", attn_implementation="eager")
    assert not enable_block_attention(model)
    assert model.config._attn_implementation == "eager"


def test_the_attention_implementation_of_the_user_is_kept() -> None:
    model = HfModel(pretrained=str(tiny_checkpoint()), attn_implementation="sdpa")
    plain = HfModel(pretrained=str(tiny_checkpoint()))
    assert read_attention_implementation(model) == "sdpa" != read_attention_implementation(plain)


def read_attention_implementation(model: HfModel) -> str:
    async def look() -> str:
        await model.open()
        try:
            backend = model.backend
            assert isinstance(backend, TextBackend)
            return str(backend.engine.model.config._attn_implementation)
        finally:
            await model.close()

    return asyncio.run(look())


def test_enabling_block_attention_twice_has_no_effect() -> None:
    model = load("llama")
    assert enable_block_attention(model) and enable_block_attention(model)


def test_a_model_with_recurrent_state_is_left_unchanged() -> None:
    assert not enable_block_attention(load("mamba"))
