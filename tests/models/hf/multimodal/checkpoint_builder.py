"""Build tiny checkpoints: a character tokenizer, a template, random weights and all files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["VISION", "Plan", "template"]

_CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% for part in message.content -%}
{%- if part.type == 'image' -%}IMAGE
{%- elif part.type == 'video' -%}VIDEO
{%- elif part.type == 'audio' -%}AUDIO
{%- else -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
_ENDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


class Plan:
    """What one architecture needs: config, placeholders, processor files."""

    def __init__(self, folder: Path, marks: list[str], named: dict[str, str] | None = None) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        self.folder = folder
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {text: at for at, text in enumerate([*_ENDS, *marks, *letters])}
        plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        plain.decoder = decoders.ByteLevel()
        plain.add_special_tokens([*_ENDS, *marks])
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=plain,
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            **({"extra_special_tokens": named} if named else {}),
        )
        self.size = len(vocabulary)

    def id(self, mark: str) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(mark))

    @property
    def ends(self) -> dict[str, Any]:
        return {"bos_token_id": None, "eos_token_id": self.id("<|im_end|>"), "pad_token_id": 0}

    @property
    def text(self) -> dict[str, Any]:
        return {**_TEXT, "vocab_size": self.size, **self.ends}

    def save(self, kind: str, config: Any, processor: dict[str, Any], template: str, **files: Any) -> None:
        import torch
        import transformers

        torch.manual_seed(0)
        config.dtype = "float32"
        model = getattr(transformers, kind)(config)
        with torch.no_grad():
            for weight in model.parameters():  # large enough that images and audio change the answer
                if weight.dim() > 1:
                    weight.copy_(torch.randn(weight.shape) / 8)
        model.generation_config.update(**self.ends)
        model.save_pretrained(self.folder)
        self.tokenizer.save_pretrained(self.folder)
        self.write("preprocessor_config.json", processor)
        for name, content in files.items():
            self.write(f"{name}.json", content)
        if template:
            (self.folder / "chat_template.jinja").write_text(template, encoding="utf-8")

    def write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content), encoding="utf-8")


def template(image: str = "", video: str = "", audio: str = "") -> str:
    return _CHATML.replace("IMAGE", image).replace("VIDEO", video).replace("AUDIO", audio)
