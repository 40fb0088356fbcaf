"""Shim for `lmms_eval.api.instance`: the request object class tasks build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Instance"]


@dataclass
class Instance:
    """One request of a document, as Python-class tasks construct it."""

    request_type: str
    arguments: Any
    idx: int
    metadata: dict[str, Any] = field(default_factory=dict)
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)
    raw_filtered_resps: dict[str, Any] = field(default_factory=dict)
    token_counts: list[Any] = field(default_factory=list)
    task_name: str | None = None
    doc_id: int | None = None
    repeats: int | None = None
    doc: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        about = self.metadata
        self.task_name, self.doc_id, self.repeats = about["task"], about["doc_id"], about["repeats"]

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as a tuple, also when there is one."""
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
