"""The public test kit: a scripted model, and checks for those who write adapters."""

from assay.testing.scripted import ScriptedModel

__all__ = ["ScriptedModel"]
