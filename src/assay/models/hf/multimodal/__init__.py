"""Models that see or hear: pictures, sounds and videos through the checkpoint's own processor and chat template."""

from __future__ import annotations

from assay.models.hf.multimodal.backend import MultimodalBackend

__all__ = ["MultimodalBackend"]
