"""Shim for `lm_eval.api.instance`: the request object class tasks build."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

__all__ = ["Instance"]


@dataclass
class Instance:
    """One request of a document, as Python-class tasks construct it."""

    request_type: str
    doc: dict[str, Any]
    arguments: Any
    idx: int
    metadata: tuple[Any, ...] = (None, None, None)
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)
    task_name: str | None = None
    doc_id: int | None = None
    repeats: int | None = None
    apply_chat_template: InitVar[Any] = None
    """Ignored. Class tasks of lm_eval before 0.4.6 pass on every argument of `construct_requests`."""
    chat_template: InitVar[Any] = None

    def __post_init__(self, apply_chat_template: Any, chat_template: Any) -> None:
        self.task_name, self.doc_id, self.repeats = self.metadata

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as a tuple, also when there is one."""
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
