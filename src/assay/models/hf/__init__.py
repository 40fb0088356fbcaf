"""Models in the format of Hugging Face transformers, run in this process.

arguments   what `--model_args` may say
checkpoint  where the files are, what kind of model they hold, and what they are by content
adapter     `HfModel`: the `Model` port; tokens are made in one thread, the model computes in another
text        causal and encoder-decoder models of text
multimodal  models that also see or hear
"""

from __future__ import annotations

from assay.models.hf.adapter import HfModel

__all__ = ["HfModel"]
