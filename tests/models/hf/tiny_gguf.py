"""A tiny Llama in the format of llama.cpp."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.hf.tiny_checkpoints import TEMPLATE, tiny_checkpoint

__all__ = ["tiny_gguf"]


@cache
def tiny_gguf() -> Path:
    """Return the path of a GGUF file with the weights of `tiny_checkpoint`, written once per process."""
    folder = tiny_checkpoint().with_name("gguf")
    folder.mkdir()
    _write_gguf(folder / "tiny.gguf", tiny_checkpoint())
    return folder / "tiny.gguf"


def _write_gguf(path: Path, source: Path) -> None:
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
