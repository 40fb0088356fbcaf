"""Multi-round conversations about one document: each request depends on the responses so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.core.records.requests import Generate

__all__ = ["Dialogue", "DialogueResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueResult:
    """The end of a dialogue: there is no further request."""

    answer: Any
    """What is scored: the list of the texts of all rounds, or a single text."""


class Dialogue(Protocol):
    """The conversation with a model about one document. When a run is resumed, a new one receives the stored turns."""

    def next(self, turns: Sequence[str]) -> Generate | DialogueResult:
        """Return the next request, given the responses of all previous rounds, or the result.

        Calls with the same turns return the same value.
        """
        ...
