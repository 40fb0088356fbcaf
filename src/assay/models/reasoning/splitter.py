"""Separate the reasoning of one generated text, during and after its generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.models.reasoning.formats import ReasoningFormat, SplitText
from assay.models.tokens.stop_strings import cut_at_stops, split_thinking

__all__ = ["ReasoningSplitter"]


@dataclass(frozen=True, slots=True)
class ReasoningSplitter:
    """Knows where the reasoning of one response ends. Without a format and an end mark, everything is the answer."""

    format: ReasoningFormat | None = None
    is_open: bool = False
    """Whether the prompt ends inside the reasoning."""

    end_mark: str = ""
    """`think_end_token`: everything up to its last occurrence is reasoning, as in lm-eval. Replaces the format."""

    @classmethod
    def for_prompt(
        cls, format: ReasoningFormat | None, prompt: str, *, end_mark: str = ""
    ) -> ReasoningSplitter:
        """Return the splitter for the response to a rendered prompt."""
        if end_mark or format is None:
            return cls(end_mark=end_mark)
        return cls(format, format.opens(prompt))

    @property
    def is_active(self) -> bool:
        """Whether a response can contain reasoning."""
        return self.format is not None or bool(self.end_mark)

    @property
    def end_marks(self) -> tuple[str, ...]:
        """The marks that end the reasoning."""
        if self.end_mark or self.format is None:
            return (self.end_mark,) if self.end_mark else ()
        return self.format.end_marks

    def split(self, text: str) -> SplitText:
        """Split a complete text."""
        if self.end_mark:
            reasoning, answer = split_thinking(text, self.end_mark)
            return SplitText(answer, reasoning)
        return SplitText(text) if self.format is None else self.format.split(text, is_open=self.is_open)

    def split_and_cut(self, text: str, stops: Sequence[str]) -> SplitText:
        """Split a complete text and cut its answer at the stop strings."""
        found = self.split(text)
        return SplitText(cut_at_stops(found.answer, stops), found.reasoning, found.is_finished)

    def can_begin(self, text: str) -> bool:
        """Whether the reasoning has begun or can still begin, given the text so far."""
        if self.is_open or self.end_mark or self.format is None:
            return self.is_active
        return self.format.can_begin(text)

    def end_reasoning(self, text: str) -> str:
        """Return what to add to a text that used up its thinking budget: nothing if its reasoning has ended already.

        A text without reasoning gets nothing either.
        """
        if self.format is None:
            return ""
        found = self.format.split(text, is_open=self.is_open)
        is_unfinished = found.reasoning is not None and not found.is_finished
        return self.format.closing_text if is_unfinished else ""

    def has_stop(self, text: str, stops: Sequence[str]) -> bool:
        """Whether the answer in a text so far contains a stop string. Stop strings in the reasoning do not count."""
        if self.end_mark:
            answer = text.rpartition(self.end_mark)[2] if self.end_mark in text else ""
        elif self.format is None or not self.can_begin(text):
            answer = text
        else:
            found = self.format.split(text, is_open=self.is_open)
            answer = found.answer if found.reasoning is not None and found.is_finished else ""
        return any(stop and stop in answer for stop in stops)
