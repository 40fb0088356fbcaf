"""`anthropic`: Claude over the Messages API, one call for each request or in batches."""

from __future__ import annotations

from assay.models.anthropic.adapter import AnthropicModel

__all__ = ["AnthropicModel"]
