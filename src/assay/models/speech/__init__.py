"""Writes down English speech, with Moonshine."""

from assay.models.speech.adapter import SpeechModel

__all__ = ["SpeechModel"]
