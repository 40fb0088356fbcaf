"""One item of a dataset, as a task processes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A row after `process_docs`. `index` is its position in the evaluated split: lm-eval's `doc_id`.

    `prompt_fields` are the fields after the prompt was built, if the task's code changed them; lm-eval hashes these.
    """

    task: str
    index: int
    fields: Mapping[str, Any]
    prompt_fields: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        return f"{self.task}/{self.index}"
