"""Models and tokenizers that a script loaded: what their answers depend on, and modules that are not of transformers."""

from __future__ import annotations

import hashlib
import json
import uuid
from types import SimpleNamespace
from typing import Any

from assay.core.fingerprints import digest_text

__all__ = ["ForeignModel", "adapt_module", "identify_model", "identify_tokenizer"]

_KNOWN_CODE = frozenset({"torch", "transformers", "peft"})
"""Packages whose modules compute the same from the same weights and config."""

_KNOWN_ATTENTION = frozenset(
    "eager sdpa flash_attention_2 flash_attention_3 flash_attention_4 flex_attention".split()
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_VOLATILE_KEYS = frozenset({"_name_or_path", "transformers_version"})


class ForeignModel:
    """A module that maps token ids to logits, as lm-eval calls it: with nothing but the ids."""

    generation_config = None

    def __init__(self, module: Any) -> None:
        self.module = module
        self.config = module.config
        weight = next(module.parameters())
        self.device = weight.device
        self.dtype = weight.dtype

    def __call__(self, input_ids: Any, **_: Any) -> Any:
        return SimpleNamespace(logits=self.module(input_ids).logits)

    def forward(self, input_ids: Any) -> Any:
        """Compute the logits of all positions."""
        return self(input_ids)

    def get_input_embeddings(self) -> Any:
        """Return an object on the device of the module."""
        return SimpleNamespace(weight=SimpleNamespace(device=self.device))

    def generate(self, **inputs: Any) -> Any:
        """Generate with the method of the module.

        Raises:
            TypeError: The module has none.
        """
        if not hasattr(self.module, "generate"):
            raise TypeError(f"{type(self.module).__name__} has no method `generate`")
        return self.module.generate(**inputs)


def adapt_module(model: Any) -> Any:
    """Return a model of transformers as it is, and another module as `ForeignModel`. Both compute answers, not gradients."""
    model.eval()
    return model if hasattr(model, "get_input_embeddings") else ForeignModel(model)


def identify_model(model: Any) -> dict[str, str]:
    """Return hashes of the weights and configs of a loaded model.

    They determine the answers of the modules of torch, transformers and peft. A model with other code or with hooks gets a
    key of its own, so that no other run counts as the same.
    """
    found = {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "weights_sha256": _hash_weights(model),
        "config_sha256": _hash_config(model.config),
    }
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        found["generation_config_sha256"] = _hash_config(generation)
    attention = getattr(model.config, "_attn_implementation", None)
    if attention is not None:
        found["attention"] = str(attention)
    if not _has_known_code(model) or attention not in {None, *_KNOWN_ATTENTION}:
        found["object"] = uuid.uuid4().hex
    return found


def identify_tokenizer(tokenizer: Any) -> dict[str, str]:
    """Return hashes of a loaded tokenizer and its chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    template = json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True)
    return {"tokenizer_sha256": digest_text(type(tokenizer).__qualname__, rules, special, template)}


def _hash_weights(model: Any) -> str:
    import torch

    hasher = hashlib.sha256()
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in sorted(state):
        values = state[name].detach()
        hasher.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        hasher.update(values.reshape(-1).contiguous().view(torch.uint8).cpu().numpy().data)
    return hasher.hexdigest()


def _hash_config(config: Any) -> str:
    kept = {key: value for key, value in config.to_dict().items() if key not in _VOLATILE_KEYS}
    return digest_text(json.dumps(kept, sort_keys=True, default=str))


def _has_known_code(model: Any) -> bool:
    """Return whether all modules are those of known packages, without hooks and without replaced methods."""
    return all(
        {type(one).__module__.partition(".")[0], type(one).forward.__module__.partition(".")[0]}
        <= _KNOWN_CODE
        and "forward" not in vars(one)
        and not any(getattr(one, hooks, None) for hooks in _HOOKS)
        for one in model.modules()
    )
