"""Batch APIs: many requests submitted at once, answered within a day at a lower price.

service.py      interface of a batch API; `assay.store.batch_submissions` records which request is in which batch
openai.py       OpenAI: files and batches
anthropic.py    Anthropic: message batches
model.py        a `Model` that answers a window by submitting, polling and reading a batch
"""

from __future__ import annotations

from assay.models.batches.anthropic import anthropic_model
from assay.models.batches.model import BatchModel
from assay.models.batches.openai import batch_gpt4, openai_model

__all__ = ["BatchModel", "anthropic_model", "batch_gpt4", "openai_model"]
