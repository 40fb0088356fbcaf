"""`gemini`: Google's models over the Gemini API."""

from __future__ import annotations

from assay.models.gemini.adapter import GeminiModel

__all__ = ["GeminiModel"]
