"""Batch APIs: many requests handed in at once, answered within a day, for less money.

book.py      which request is in which batch, on disk: a run that was killed picks its batches up
service.py   what is asked of a batch API
openai.py    OpenAI's: files and batches
anthropic.py Anthropic's: message batches
model.py     a `Model` that answers a window by submitting, polling and reading a batch
"""

from __future__ import annotations

from assay.models.batches.anthropic import anthropic_model
from assay.models.batches.model import BatchModel
from assay.models.batches.openai import batch_gpt4, openai_model

__all__ = ["BatchModel", "anthropic_model", "batch_gpt4", "openai_model"]
