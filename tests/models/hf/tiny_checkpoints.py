"""Create tiny checkpoints of real architectures: random weights, a byte-level tokenizer and a chat template."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

__all__ = ["TEMPLATE", "make_checkpoint", "make_tokenizer", "tiny_checkpoint"]

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
_SPECIAL = ["<s>", "</s>", "<pad>", "</think>"]


@cache
def _place() -> TemporaryDirectory[str]:
    """Removed when the process ends."""
    return TemporaryDirectory(prefix="assay-tiny-")


@cache
def tiny_checkpoint(kind: str = "llama", **changes: Any) -> Path:
    """Return the folder of a tiny model of that architecture, created once per process."""
    name = "-".join([kind, *(f"{key}={value}" for key, value in sorted(changes.items()))])
    return make_checkpoint(Path(_place().name) / name, kind, **changes)


def make_tokenizer(*, bos: bool = True) -> Any:
    """Return a tokenizer of bytes and merges of a few English words, so that token boundaries matter."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    texts = [
        "the sky is blue and the answer is what the cat sat on",
        "Question: Answer: once upon a time",
    ] * 4
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(texts, trainer)
    if bos:
        plain.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=TEMPLATE
    )


def make_checkpoint(folder: Path, kind: str = "llama", *, bos: bool = True, **changes: Any) -> Path:
    """Create a folder with weights, config and tokenizer. The weights are large, so that contexts matter."""
    import torch
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = make_tokenizer(bos=bos)
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "llama": (
            "Llama",
            {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2, "max_position_embeddings": 512},
        ),
        "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}),
        "mistral": (
            "Mistral",
            {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2, "max_position_embeddings": 512, "sliding_window": 8},
        ),
        "mamba": ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
        "t5": (
            "T5",
            {
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 48,
                "num_layers": 2,
                "num_heads": 4,
                "decoder_start_token_id": 2,
            },
        ),
    }
    name, sizes = made[kind]
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "vocab_size": len(tokenizer)}
    config = getattr(transformers, f"{name}Config")(**(sizes | tokens | changes))
    heads = {"gpt2": "LMHeadModel", "t5": "ForConditionalGeneration"}
    draw = np.random.RandomState(7)  # the same numbers in every version of NumPy
    model = getattr(transformers, name + heads.get(kind, "ForCausalLM"))(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                drawn = draw.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32)
                parameter.copy_(torch.from_numpy(drawn))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
