"""The embedded model: one million parameters, text and images, NumPy only."""

from assay.models.embedded.adapter import EmbeddedModel

__all__ = ["EmbeddedModel"]
