"""Block attention on a CPU equals the attention of transformers, and unsupported models are left unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.models.hf import HfModel
from assay.models.hf.prefix_sharing import block_attention
from assay.models.hf.prefix_sharing.attention_mask import AttentionBlock
from assay.models.hf.prefix_sharing.block_attention import attach_blocks, enable_block_attention
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


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_blocks_attend_to_their_spans_only(
    monkeypatch: pytest.MonkeyPatch, onednn: bool, cached: bool
) -> None:
    if onednn and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch has no oneDNN")
    monkeypatch.setattr(block_attention, "is_onednn_faster", lambda: onednn)
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, tokens, heads, 16) for tokens, heads in ((20, 6), (32, 2), (32, 2)))
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    if cached:  # keys of a cache are contiguous, those of one pass are not
        key, value = key.contiguous(), value.contiguous()
    masked = torch.finfo(torch.float32).min
    mask = torch.full((20, 32), masked).triu(13)[None, None]
    mask[:, :, 8:, 5:9] = masked
    attach_blocks(mask, [AttentionBlock(0, 8, ((0, 20),)), AttentionBlock(8, 20, ((0, 5), (9, 32)))])
    with torch.inference_mode():
        found, _ = block_attention._compute_attention(None, query, key, value, mask, scaling=0.3)
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
        )
    assert (found - expected.transpose(1, 2)).abs().max() < 1e-5
