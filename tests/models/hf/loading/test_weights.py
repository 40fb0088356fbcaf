"""A GGUF file and a device map load the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.models.hf.hf_requests import ask, likelihood
from tests.models.hf.tiny_checkpoints import TEMPLATE, tiny_checkpoint

from assay.core.records.responses import LogProbability, Response

pytestmark = pytest.mark.torch
REQUESTS = [likelihood("the sky", " is blue"), likelihood("what the cat", " sat on")]


def totals(folder: Path, **arguments: Any) -> list[float]:
    found = []
    for outcome in ask(folder, REQUESTS, **arguments):
        assert isinstance(outcome, Response) and isinstance(outcome.value, LogProbability)
        found.append(outcome.value.total)
    return found


@pytest.mark.parametrize("device_map", ["auto", "cpu"])
def test_a_device_map_does_not_change_answers(device_map: str) -> None:
    pytest.importorskip("accelerate")
    assert np.allclose(totals(tiny_checkpoint(), device_map=device_map), totals(tiny_checkpoint()), atol=1e-4)


def test_a_gguf_file_loads_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint())
    how: dict[str, Any] = {"add_bos_token": False}  # transformers drops it when it reads a GGUF file
    found = totals(tmp_path, gguf_file="tiny.gguf", **how)
    assert np.allclose(found, totals(tiny_checkpoint(), **how), atol=1e-4)


def write_gguf(path: Path, source: Path) -> None:
    """Write a tiny Llama in the format of llama.cpp: other tensor names, interleaved halves of rotated heads."""
    from gguf import GGUFWriter
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source)
    words, config = AutoTokenizer.from_pretrained(source), model.config
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    tokens = words.convert_ids_to_tokens(range(len(words)))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if number < 4 else 1 for number in range(len(tokens))])
    writer.add_token_merges(_merges(words))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        numbers = weight.numpy()
        for part, count in heads.items():
            if part in name:
                rotated = numbers.reshape(count, 2, -1, numbers.shape[1]).swapaxes(1, 2)
                numbers = np.ascontiguousarray(rotated.reshape(numbers.shape))
        writer.add_tensor(_to_llama_cpp_name(name), numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _merges(words: Any) -> list[str]:
    state = json.loads(words.backend_tokenizer.to_str())
    return [" ".join(pair) if isinstance(pair, list) else pair for pair in state["model"]["merges"]]


def _to_llama_cpp_name(name: str) -> str:
    for ours, theirs in {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.": "blk.",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }.items():  # fmt: skip
        name = name.replace(ours, theirs)
    return name
