"""`HfModel` under the names lmms-eval gives models: `getattr(named, "qwen2_5_vl")` is a class with that name's habits."""

from __future__ import annotations

from functools import cache

from assay.models.hf.adapter import HfModel
from assay.models.presets import PRESETS

__all__ = ["model_named"]


@cache
def model_named(name: str) -> type[HfModel]:
    """The class of a name.

    >>> model_named("qwen2_5_vl")().name
    'Qwen/Qwen2.5-VL-3B-Instruct'
    """
    habits = PRESETS[name]
    about = f"{habits.pretrained} and its like, by transformers, with the habits of lmms-eval's `{name}`."
    return type(name, (HfModel,), {"habits": habits, "called": name, "__doc__": about})


def __getattr__(name: str) -> type[HfModel]:
    if name not in PRESETS:
        raise AttributeError(f"no model is called `{name}` in lmms-eval")
    return model_named(name)
