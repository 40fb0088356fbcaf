"""A conversation about one document: what was answered so far decides what is asked next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.core.requests import Generate

__all__ = ["Dialogue", "Finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Nothing more is to be asked."""

    answer: Any
    """What is judged: the list of the rounds' texts, or one text."""


class Dialogue(Protocol):
    """One document's conversation with a model. Made anew when a run is continued, and told the kept answers."""

    def next(self, turns: Sequence[str]) -> Generate | Finished:
        """What to ask after these answers, all of them from the first on; with none, the first question.

        Answers it has heard before are not heard twice: asked again with the same turns it says the same.
        """
        ...
