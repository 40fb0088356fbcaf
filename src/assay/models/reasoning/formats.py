"""The marks that models put around their reasoning, and how to find out which ones a model uses.

The chat template of a model and its special tokens tell its format. For a server, which shows neither, the beginning of a
response tells it. Reasoning is separated before stop strings and filters see the text: `<think>maybe 7</think>42` answers 42.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.models.reasoning.harmony import CHANNEL_TOKEN, MESSAGE_TOKEN, HarmonyMessage, parse_harmony

__all__ = [
    "FORMATS",
    "HarmonyReasoning",
    "ReasoningFormat",
    "SplitText",
    "TaggedReasoning",
    "detect_format",
    "split_known_format",
]


@dataclass(frozen=True, slots=True)
class SplitText:
    """A generated text, split into its reasoning and its answer."""

    answer: str
    reasoning: str | None = None
    """None: the text has no reasoning."""

    is_finished: bool = True
    """Whether the reasoning ended. If not, the answer is empty."""


class ReasoningFormat(Protocol):
    """How a family of models writes its reasoning."""

    @property
    def name(self) -> str: ...

    def split(self, text: str, *, is_open: bool = False) -> SplitText:
        """Split a generated text. `is_open`: the prompt ends with the mark that opens the reasoning."""
        ...

    def opens(self, prompt: str) -> bool:
        """Whether a rendered prompt ends inside the reasoning, because the chat template writes the opening mark."""
        ...

    def can_begin(self, text: str) -> bool:
        """Whether a text begins with reasoning, or with the beginning of its opening mark."""
        ...

    @property
    def end_marks(self) -> tuple[str, ...]:
        """The marks that end the reasoning."""
        ...

    @property
    def closing_text(self) -> str:
        """What a model writes between its reasoning and its answer, to end the reasoning for it."""
        ...


@dataclass(frozen=True, slots=True)
class TaggedReasoning:
    """Reasoning between an opening and a closing mark.

    >>> TaggedReasoning("think", "<think>", "</think>").split("<think>7?</think>42")
    SplitText(answer='42', reasoning='7?', is_finished=True)
    """

    name: str
    opening: str
    closing: str
    label: str = ""
    """A line that the model writes after the opening mark, which is not part of the reasoning."""

    answer_marks: tuple[str, ...] = ()
    """Marks around the answer, which are removed."""

    other_openings: tuple[str, ...] = ()
    other_closings: tuple[str, ...] = ()

    def split(self, text: str, *, is_open: bool = False) -> SplitText:
        """Split a generated text.

        A closing mark without an opening one ends reasoning that began in the prompt. Further blocks are reasoning, too. A mark
        inside a block has no meaning until its closing mark.
        """
        openings, closings = (self.opening, *self.other_openings), (self.closing, *self.other_closings)
        thoughts: list[str] = []
        answer: list[str] = []
        inside = is_open or _is_before(_find_first(text, closings), _find_first(text, openings))
        while True:
            found = _find_first(text, closings if inside else openings)
            piece, text = (text, "") if found is None else (text[: found[0]], text[found[1] :])
            (thoughts if inside else answer).append(piece)
            if found is None:
                break
            inside = not inside
        if not thoughts:
            return SplitText(self._clean_answer(text="".join(answer)))
        reasoning = "\n".join(filter(None, (self._clean_thought(thought) for thought in thoughts)))
        return SplitText(self._clean_answer("".join(answer)), reasoning, not inside)

    def opens(self, prompt: str) -> bool:
        return prompt.rstrip().endswith((self.opening, *self.other_openings))

    def can_begin(self, text: str) -> bool:
        return any(_is_prefix(text.lstrip(), mark) for mark in (self.opening, *self.other_openings))

    @property
    def end_marks(self) -> tuple[str, ...]:
        return (self.closing, *self.other_closings)

    @property
    def closing_text(self) -> str:
        return f"\n{self.closing}\n\n"

    def _clean_thought(self, thought: str) -> str:
        return thought.strip().removeprefix(self.label).strip()

    def _clean_answer(self, text: str) -> str:
        for mark in self.answer_marks:
            text = text.replace(mark, "")
        return text.lstrip()


@dataclass(frozen=True, slots=True)
class HarmonyReasoning:
    """The channels of gpt-oss: `analysis` and `commentary` are reasoning, `final` is the answer.

    >>> HarmonyReasoning().split("<|channel|>analysis<|message|>7?<|end|><|start|>assistant<|channel|>final<|message|>42")
    SplitText(answer='42', reasoning='7?', is_finished=True)
    """

    name: str = "harmony"

    def split(self, text: str, *, is_open: bool = False) -> SplitText:
        if is_open:
            text = f"{CHANNEL_TOKEN}analysis{MESSAGE_TOKEN}{text}"
        messages = parse_harmony(text)
        thoughts = [message.content for message in messages if not _is_answer(message)]
        answers = [message.content for message in messages if _is_answer(message)]
        if not thoughts:
            return SplitText("".join(answers))
        return SplitText("".join(answers), "\n".join(thoughts), bool(answers))

    def opens(self, prompt: str) -> bool:
        return prompt.rstrip().endswith(f"{CHANNEL_TOKEN}analysis{MESSAGE_TOKEN}")

    def can_begin(self, text: str) -> bool:
        return _is_prefix(text.lstrip(), CHANNEL_TOKEN)

    @property
    def end_marks(self) -> tuple[str, ...]:
        return (f"{CHANNEL_TOKEN}final{MESSAGE_TOKEN}",)

    @property
    def closing_text(self) -> str:
        return f"<|end|><|start|>assistant{CHANNEL_TOKEN}final{MESSAGE_TOKEN}"


def _is_answer(message: HarmonyMessage) -> bool:
    return message.channel in ("final", "")


FORMATS: tuple[ReasoningFormat, ...] = (
    HarmonyReasoning(),
    TaggedReasoning("gemma", "<|channel>", "<channel|>", label="thought"),
    TaggedReasoning("mistral", "[THINK]", "[/THINK]"),
    TaggedReasoning(
        "cohere",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        answer_marks=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    TaggedReasoning("seed", "<seed:think>", "</seed:think>"),
    TaggedReasoning("kimi", "◁think▷", "◁/think▷"),
    TaggedReasoning("apertus", "<|inner_prefix|>", "<|inner_suffix|>"),
    TaggedReasoning("think", "<think>", "</think>", answer_marks=("<response>", "</response>")),
    TaggedReasoning("thinking", "<thinking>", "</thinking>"),
    TaggedReasoning("thought", "<thought>", "</thought>"),
    TaggedReasoning(
        "granite",
        "Here is my thought process:",
        "Here is my response:",
        other_openings=("Here's my thought process:",),
        other_closings=("Here's my response:",),
    ),
)
"""All formats. Those with marks that are special tokens come first."""

_BY_NAME = {one.name: one for one in FORMATS}


def detect_format(chat_template: str, special_tokens: Iterable[str] = ()) -> ReasoningFormat | None:
    """Return the reasoning format of a model from its chat template and special tokens, or None.

    >>> detect_format("{{ '<|im_start|>assistant\\n<think>\\n' }}").name
    'think'
    >>> detect_format("{{ message['content'] }}") is None
    True
    """
    known = "\n".join([chat_template, *special_tokens])
    if CHANNEL_TOKEN in known and MESSAGE_TOKEN in known:
        return _BY_NAME["harmony"]
    for one in FORMATS:
        if isinstance(one, TaggedReasoning) and (one.opening in known or one.closing in known):
            return one
    return None


def split_known_format(text: str) -> SplitText:
    """Split the response of a server whose format is unknown: where it begins with an opening mark.

    A closing `</think>` without its opening mark ends reasoning, too: many templates write the opening mark in the prompt.

    >>> split_known_format("[THINK]7?[/THINK]42").answer, split_known_format("say <think>").answer
    ('42', 'say <think>')
    """
    start = text.lstrip()
    for one in FORMATS:
        if isinstance(one, TaggedReasoning):
            if start.startswith((one.opening, *one.other_openings)):
                return one.split(text)
        elif start.startswith(CHANNEL_TOKEN):
            return one.split(text)
    think = _BY_NAME["think"]
    if isinstance(think, TaggedReasoning) and think.closing in text and think.opening not in text:
        return think.split(text)
    return SplitText(text)


def _find_first(text: str, marks: Sequence[str]) -> tuple[int, int] | None:
    """Return where the first of several marks begins and ends."""
    found = [(index, index + len(mark)) for mark in marks if (index := text.find(mark)) >= 0]
    return min(found, default=None)


def _is_before(first: tuple[int, int] | None, second: tuple[int, int] | None) -> bool:
    return first is not None and (second is None or first[0] < second[0])


def _is_prefix(text: str, mark: str) -> bool:
    """Whether one of the two begins with the other."""
    return text.startswith(mark) or mark.startswith(text)
