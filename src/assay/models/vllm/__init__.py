"""vLLM in this process: text and multimodal checkpoints, generation and likelihoods, with shared prefixes computed once."""

from __future__ import annotations

from assay.models.vllm.adapter import VllmChatModel, VllmGenerateModel, VllmModel

__all__ = ["VllmChatModel", "VllmGenerateModel", "VllmModel"]
