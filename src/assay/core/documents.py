"""One item of a dataset, as a task sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.quick_records import quickly_made

__all__ = ["Document"]


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A row after `process_docs`. `index` is its position in the evaluated split: lm-eval's `doc_id`."""

    task: str
    index: int
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.task}/{self.index}"
