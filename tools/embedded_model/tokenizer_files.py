"""The character vocabulary and the tokenizer files, in the format of `tokenizers` and `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIALS = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<|system|>", "<|user|>", "<|assistant|>"]
CHARACTERS = ["\n", *(chr(code) for code in range(32, 127))]
IDS = {token: number for number, token in enumerate([*SPECIALS, *CHARACTERS])}
PAD, BOS, EOS, UNKNOWN, IMAGE, SYSTEM, USER, ASSISTANT = range(len(SPECIALS))
CONTEXT = 1024

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|' + message['role'] + '|>' -}}
    {%- if message['content'] is string -%}
        {{- message['content'] -}}
    {%- else -%}
        {%- for part in message['content'] -%}
            {%- if part['type'] == 'image' -%}
                {{- '<image>\\n' -}}
            {%- elif part['type'] == 'text' -%}
                {{- part['text'] -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{- eos_token -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"""


def encode(text: str) -> list[int]:
    """Return one token per character; the generators produce no special tokens."""
    return [IDS.get(character, UNKNOWN) for character in text]


def build_tokenizer_json() -> dict[str, Any]:
    """Return a BPE tokenizer without merges: every character is one token."""
    special = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, token in enumerate(SPECIALS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": IDS,
            "merges": [],
        },
    }


def write_tokenizer(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": "LlavaProcessor",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "image_token": "<image>",
        "extra_special_tokens": {"image_token": "<image>"},
        "model_max_length": CONTEXT,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer.json", build_tokenizer_json()), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
