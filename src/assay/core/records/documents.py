"""One item of a dataset, as a task processes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.records.fast_init import fast_init

__all__ = ["Document"]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A row after `process_docs`. `index` is its position in the evaluated split: lm-eval's `doc_id`."""

    task: str
    index: int
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.task}/{self.index}"
