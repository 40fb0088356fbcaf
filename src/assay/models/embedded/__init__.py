"""The embedded model: a million parameters, text and pictures, NumPy only."""

from assay.models.embedded.adapter import EmbeddedModel

__all__ = ["EmbeddedModel"]
