"""Models in the format of Hugging Face transformers, run in this process.

adapter         `HfModel`, the `Model` port: one thread tokenizes, another runs the model
arguments       `--model_args`
loading         checkpoint files, config, weights, tokenizer, supported media
text            causal and encoder-decoder text models: scoring and generation
prefix_sharing  computes shared prefixes once: prefix tree, pass planning, attention mask, KV cache
multimodal      models that read images, audio or video
sampling        from logits to the next token
batch_budget    how much to compute at once
preset_models   `HfModel` under the model names of lmms-eval
"""

from __future__ import annotations

from assay.models.hf.adapter import HfModel

__all__ = ["HfModel"]
