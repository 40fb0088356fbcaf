"""`HfModel` under the model names of lmms-eval: `preset_models.qwen2_5_vl` is a subclass with that preset."""

from __future__ import annotations

from functools import cache

from assay.models.hf.adapter import HfModel
from assay.models.presets import PRESETS

__all__ = ["make_preset_class"]


@cache
def make_preset_class(name: str) -> type[HfModel]:
    """Return the subclass of `HfModel` for a preset.

    >>> make_preset_class("qwen2_5_vl")().name
    'Qwen/Qwen2.5-VL-3B-Instruct'
    """
    preset = PRESETS[name]
    about = f"{preset.pretrained} and similar checkpoints in transformers, with the defaults of lmms-eval's `{name}`."
    return type(name, (HfModel,), {"preset": preset, "model_name": name, "__doc__": about})


def __getattr__(name: str) -> type[HfModel]:
    if name not in PRESETS:
        raise AttributeError(f"there is no preset `{name}`")
    return make_preset_class(name)
