"""Who answers: one adapter per backend, Request -> Response. Knows nothing of tasks, documents or scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import BadOption
from assay.core.ports import Model
from assay.core.registry import Registry

__all__ = ["MODELS", "make_model"]

MODELS: Registry[Callable[..., Model]] = Registry("model")
"""Name -> a class or function that takes the model's arguments. Importing an adapter is left to its first use."""

MODELS.add_lazy("embedded", "assay.models.embedded:EmbeddedModel")
for _name in ("hf", "hf-auto", "hf-multimodal", "huggingface"):
    MODELS.add_lazy(_name, "assay.models.hf:HfModel")
MODELS.add_lazy("llamacpp", "assay.models.llamacpp:LlamaCppModel")
MODELS.add_lazy("smollm2", "assay.models.smollm2:SmolLM2Model")
MODELS.add_lazy("dummy", "assay.models.dummy:DummyModel")
MODELS.add_lazy("oracle", "assay.models.oracle:OracleModel")
MODELS.add_lazy("human", "assay.models.human:HumanModel")
MODELS.add_lazy(
    "replay", "assay.engine.results.replay:ReplayModel"
)  # it reads the store, which models do not know
MODELS.add_lazy("ocr", "assay.models.ocr:OcrModel")
MODELS.add_lazy("speech", "assay.models.speech:SpeechModel")
MODELS.add_lazy("moonshine", "assay.models.speech:SpeechModel")
for _name in ("vllm", "vllm-vlm"):
    MODELS.add_lazy(_name, "assay.models.vllm:VllmModel")
MODELS.add_lazy("vllm_chat", "assay.models.vllm:VllmChatModel")
MODELS.add_lazy("vllm_generate", "assay.models.vllm:VllmGenerateModel")
for _name in ("openai", "openai-chat-completions", "local-chat-completions"):
    MODELS.add_lazy(_name, "assay.models.batches:openai_model")
MODELS.add_lazy("batch_gpt4", "assay.models.batches:batch_gpt4")
for _name in ("openai_compatible", "openai_compatible_chat", "async_openai", "gpt4v"):
    MODELS.add_lazy(_name, "assay.models.remote.openai:openai_of_lmms_eval")
MODELS.add_lazy("openai-completions", "assay.models.remote.completions:openai_completions")
MODELS.add_lazy("local-completions", "assay.models.remote.completions:CompletionsModel")
MODELS.add_lazy("azure-openai-chat-completions", "assay.models.remote.openai:azure_openai")
for _name in (
    "gemma3 idefics idefics2 internvl_hf internvl_hf_chat llava_hf llava_hf_chat llava_onevision phi4_multimodal "
    "phi4_multimodal_chat qwen2_5_omni qwen2_5_omni_chat qwen2_5_vl qwen2_5_vl_chat qwen2_audio qwen2_vl qwen3_vl "
    "qwen3_vl_chat smolvlm whisper"
).split():  # lmms-eval's names: a task chooses its prompt by them
    MODELS.add_lazy(_name, f"assay.models.hf.named:{_name}")
for _name in ("anthropic", "anthropic-chat", "anthropic-chat-completions", "claude"):
    MODELS.add_lazy(_name, "assay.models.batches:anthropic_model")
for _name in ("gemini", "gemini_api"):
    MODELS.add_lazy(_name, "assay.models.gemini:GeminiModel")
for _name in ("litellm", "litellm_chat", "litellm_compatible"):
    MODELS.add_lazy(_name, "assay.models.litellm:LiteLLMModel")


def make_model(name: str, arguments: Mapping[str, Any], **common: Any) -> Model:
    """An adapter with its arguments, not yet opened: nothing is loaded.

    `common` are options every run has (`batch_size`, `device`); an adapter that has a use for them takes them. A
    `chat_template` that was asked for by name or file is not ignored by one that has none.

    Raises:
        UnknownName: No model is called that.
        BadOption: The model does not take these arguments.
    """
    factory = MODELS.get(name, where="--model")
    signature = inspect.signature(factory)
    if common.get("batch_api") and "batch_api" not in signature.parameters:
        raise BadOption(
            f"the model `{name}` has no batch API",
            where="--batch_api",
            hint="`openai` and `anthropic` have one",
        )
    given = {key: value for key, value in common.items() if value is not None and key in signature.parameters}
    template = common.get("chat_template")
    if template is not None and "chat_template" not in signature.parameters:
        raise BadOption(
            f"the model `{name}` has no chat template called `{template}`",
            where="--apply_chat_template",
            hint="without a name, the model's own template is used",
        )
    given.update(arguments)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise BadOption(
            f"the model `{name}` does not take these arguments: {error}", where="--model_args"
        ) from None
    return factory(**given)
