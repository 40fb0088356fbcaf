"""Models that see or hear: not built yet, and said so before anything loads."""

from __future__ import annotations

from typing import NoReturn

from assay.core.errors import CannotAnswer
from assay.models.hf.arguments import HfArguments
from assay.models.hf.checkpoint import Checkpoint

__all__ = ["MultimodalBackend"]


def MultimodalBackend(arguments: HfArguments, checkpoint: Checkpoint) -> NoReturn:  # noqa: N802
    """Refuse, and say what would work."""
    raise CannotAnswer(
        f"`{checkpoint.name}` is a multimodal checkpoint",
        where="--model_args pretrained",
        hint="its text part alone can be asked with backend=causal",
    )
