"""Model adapters, one per backend: Request -> Response. They know nothing about tasks, documents or scores.

To add a built-in model, write its module and call `register_builtin` for it below. Other packages register theirs: the
engine adds `replay`, plugins use the entry point group `assay.models`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Model
from assay.core.registry import Registry
from assay.models.presets import PRESETS

__all__ = [
    "BUILTIN_MODELS",
    "MODELS",
    "PLUGIN_MODELS",
    "BuiltinModel",
    "find_models_with",
    "make_model",
    "register_builtin",
    "register_plugin",
]

MODELS: Registry[Callable[..., Model]] = Registry("model")
"""Name -> a class or function that takes the model's arguments. An adapter is imported when it is first used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinModel:
    """What is known about a built-in model without importing its adapter."""

    names: tuple[str, ...]
    target: str
    """`package.module:attribute` inside `assay.models`; empty for a plugin."""

    abilities: frozenset[Ability]
    """Everything the adapter supports. A checkpoint, file or server may support less; the plan asks the model itself.
    Empty for models that hints do not recommend: test models, and further names of a model that has them."""

    needs: frozenset[Ability]
    """Media without which the model answers nothing."""


BUILTIN_MODELS: list[BuiltinModel] = []
"""Every built-in model, in the order in which hints recommend them."""


PLUGIN_MODELS: list[BuiltinModel] = []
"""Models of the plugins in `plugins/`. Hints recommend them after the built-in ones, installed or not."""


def register_builtin(*names: str, target: str, abilities: str = "", needs: str = "") -> None:
    """Register a built-in model under one or more names. Hints use the first name."""
    entry = BuiltinModel(names=names, target=target, abilities=_parse(abilities), needs=_parse(needs))
    BUILTIN_MODELS.append(entry)
    for name in names:
        MODELS.add_lazy(name, entry.target)


def register_plugin(*names: str, distribution: str, abilities: str, needs: str = "") -> None:
    """Register the names of a model that a plugin of this project provides, for hints and errors."""
    PLUGIN_MODELS.append(
        BuiltinModel(names=names, target="", abilities=_parse(abilities), needs=_parse(needs))
    )
    MODELS.add_plugin(distribution, *names)


def _parse(abilities: str) -> frozenset[Ability]:
    return frozenset(cast("list[Ability]", abilities.split()))


register_builtin(
    "embedded",
    target="assay.models.embedded:EmbeddedModel",
    abilities="generate likelihood rolling chat image",
)
register_builtin(
    "smollm2", target="assay.models.smollm2:SmolLM2Model", abilities="generate likelihood rolling chat"
)
register_builtin(
    "llamacpp",
    target="assay.models.llamacpp:LlamaCppModel",
    abilities="generate likelihood rolling chat tools",
)
register_builtin(
    "hf",
    "hf-auto",
    "hf-multimodal",
    "huggingface",
    target="assay.models.hf:HfModel",
    abilities="generate likelihood rolling chat image audio video tools",
)
for _name in PRESETS:  # the names of lmms-eval: a task selects its prompt by them
    register_builtin(_name, target=f"assay.models.hf.preset_models:{_name}")
register_builtin(
    "vllm",
    "vllm-vlm",
    target="assay.models.vllm:VllmModel",
    abilities="generate likelihood rolling chat image audio video tools",
)
register_builtin("vllm_chat", target="assay.models.vllm:VllmChatModel")
register_builtin("vllm_generate", target="assay.models.vllm:VllmGenerateModel")
register_builtin(
    "openai",
    "openai-chat-completions",
    "local-chat-completions",
    target="assay.models.batches:openai_model",
    abilities="generate chat image audio video tools",
)
register_builtin("batch_gpt4", target="assay.models.batches:batch_gpt4")
register_builtin(
    "openai_compatible",
    "openai_compatible_chat",
    "async_openai",
    "gpt4v",
    target="assay.models.remote.openai:openai_for_lmms_eval",
)
register_builtin("azure-openai-chat-completions", target="assay.models.remote.openai:azure_openai")
register_builtin(
    "openai-completions",
    target="assay.models.remote.completions:openai_completions",
    abilities="generate likelihood rolling chat",
)
register_builtin(
    "local-completions",
    target="assay.models.remote.completions:CompletionsModel",
    abilities="generate likelihood rolling chat",
)
register_builtin(
    "anthropic",
    "anthropic-chat",
    "anthropic-chat-completions",
    "claude",
    target="assay.models.batches:anthropic_model",
    abilities="generate chat image video tools",
)
register_builtin(
    "gemini",
    "gemini_api",
    target="assay.models.hosted.gemini:GeminiModel",
    abilities="generate chat image audio video tools",
)
register_builtin(
    "litellm",
    "litellm_chat",
    "litellm_compatible",
    target="assay.models.hosted.litellm:LiteLLMModel",
    abilities="generate chat image audio video tools",
)
register_plugin("ocr", distribution="assay-plugin-ocr", abilities="generate chat image", needs="image")
register_plugin(
    "speech",
    "moonshine",
    distribution="assay-plugin-speech",
    abilities="generate chat audio",
    needs="audio",
)
register_plugin(
    "human", distribution="assay-plugin-human", abilities="generate likelihood chat image audio video"
)
register_builtin("dummy", target="assay.models.dummy:DummyModel")
register_builtin("oracle", target="assay.models.oracle:OracleModel")


def find_models_with(needed: Iterable[Ability]) -> list[str]:
    """Return the names of the built-in models and plugins that support all of these abilities.

    >>> find_models_with(["likelihood", "image"])
    ['embedded', 'hf', 'vllm', 'human']
    """
    abilities = set(needed)
    return [
        model.names[0]
        for model in (*BUILTIN_MODELS, *PLUGIN_MODELS)
        if abilities <= model.abilities and model.needs <= abilities
    ]


def make_model(name: str, arguments: Mapping[str, Any], **common: Any) -> Model:
    """Create a model from its arguments. Nothing is loaded before `open()`.

    `common` holds the options of every run (`batch_size`, `device`); an adapter receives those that it has a parameter
    for. A `batch_api` or a named `chat_template` that the adapter does not support is an error.

    Raises:
        UnknownName: There is no model with this name.
        InvalidOption: The model does not accept these arguments.
    """
    factory = MODELS.get(name, where="--model")
    signature = inspect.signature(factory)
    if common.get("batch_api") and "batch_api" not in signature.parameters:
        raise InvalidOption(
            f"the model `{name}` has no batch API",
            where="--batch_api",
            hint="`openai` and `anthropic` have one",
        )
    accepted = set(signature.parameters)
    if "rpm" in accepted and any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
        accepted.add("max_retry_wait")  # a remote model reads it with its other arguments
    given = {key: value for key, value in common.items() if value is not None and key in accepted}
    template = common.get("chat_template")
    if template is not None and "chat_template" not in signature.parameters:
        raise InvalidOption(
            f"the model `{name}` has no chat template called `{template}`",
            where="--apply_chat_template",
            hint="without a name, the model's own template is used",
        )
    given.update(arguments)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise InvalidOption(
            f"the model `{name}` does not take these arguments: {error}", where="--model_args"
        ) from None
    return factory(**given)
