"""Multi-round conversations about one document: each request depends on the responses so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.core.records.requests import Generate
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall

__all__ = ["Dialogue", "DialogueResult", "ResponseText"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueResult:
    """The end of a dialogue: there is no further request."""

    answer: Any
    """What is scored: the list of the texts of all rounds, or a single text."""


class ResponseText(str):
    """The text of a response in a dialogue, with the reasoning and the tool calls beside it."""

    response: Response

    @classmethod
    def from_response(cls, response: Response) -> str:
        """Return the text of a response; a plain string if there is nothing beside it."""
        if not response.tool_calls and response.reasoning is None:
            return str(response.value)
        text = cls(response.value)
        text.response = response
        return text

    @property
    def reasoning(self) -> str | None:
        """The reasoning before the answer."""
        return self.response.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return self.response.tool_calls

    def __reduce__(self) -> Any:
        return ResponseText.from_response, (self.response,)


class Dialogue(Protocol):
    """The conversation with a model about one document. When a run is resumed, a new one receives the stored turns."""

    def next(self, turns: Sequence[str]) -> Generate | DialogueResult:
        """Return the next request, given the responses of all previous rounds, or the result. A response with reasoning or
        tool calls is a `ResponseText`.

        Calls with the same turns return the same value.
        """
        ...
