"""Models that read images, audio and video, with the checkpoint's own processor and chat template."""

from __future__ import annotations

from assay.models.hf.multimodal.backend import MultimodalBackend

__all__ = ["MultimodalBackend"]
