"""GGUF files, answered in this process by llama.cpp (the package `xllamacpp`; extra `assay-harness[llamacpp]`)."""

from __future__ import annotations

from assay.models.llamacpp.adapter import LlamaCppModel

__all__ = ["LlamaCppModel"]
