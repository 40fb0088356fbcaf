"""Plan and execute runs. The only package that imports all the others."""

from __future__ import annotations

from assay.models import MODELS

__all__ = ["MODELS"]

MODELS.add_lazy(
    "replay", "assay.engine.results.replay:ReplayModel"
)  # reads the store, which models do not import
