"""Examples before the question: where they come from, which are taken, how they are written.

A prompt is a list of turns. As plain text, each turn is followed by its delimiter; as a chat, delimiters
vanish or the turns collapse into one user message. Byte for byte what lm-evaluation-harness sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.core.errors import TaskError
from assay.core.messages import Message, Prompt, Role, Text

__all__ = ["Turn", "build_question_turns", "join_texts", "prompt_from_turns"]


class Turn(NamedTuple):
    """What one side says, and what follows it in plain text."""

    role: Role
    content: str
    delimiter: str = ""


def join_texts(prefix: str | None, suffix: str | None, delimiter: str) -> str:
    """Two texts with a delimiter between, unless one side is empty or the border is white space already.

    >>> join("Be brief.", "Questions:", " "), join("Be brief. ", "Questions:", " ")
    ('Be brief. Questions:', 'Be brief. Questions:')
    """
    if not prefix or not suffix:
        return (prefix or "") + (suffix or "")
    return prefix + suffix if prefix[-1].isspace() or suffix[0].isspace() else prefix + delimiter + suffix


def build_question_turns(
    question: Any,
    answer: Any = None,
    *,
    choices: Sequence[str] | None = None,
    prefix: str | None = None,
    target_delimiter: str = " ",
    after: str = "",
    where: str = "",
) -> list[Turn]:
    """The turns of one question, with its answer for an example, without for the document itself."""
    if not isinstance(question, str):
        raise TaskError(
            f"the question must be a text, not {question!r}", where=where, hint="see `doc_to_text`"
        )
    answered = answer is not None and answer != ""
    if prefix:
        touching = question == "" or question[-1].isspace() or prefix[0].isspace()
        delimiter = "" if touching else target_delimiter
    else:
        delimiter = target_delimiter if answered else ""
    turns = [Turn("user", question, delimiter)]
    if answered:
        turns.append(Turn("assistant", join_texts(prefix, _answer_text(answer, choices, where), " "), after))
    elif prefix:
        turns.append(Turn("assistant", prefix))
    return turns


def _answer_text(answer: Any, choices: Sequence[str] | None, where: str) -> str:
    if choices and isinstance(answer, int):
        if not -len(choices) <= answer < len(choices):
            raise TaskError(
                f"an example's answer is choice {answer}, but there are {len(choices)}", where=where
            )
        answer = choices[answer]
    elif isinstance(answer, list):
        answer = answer[0] if answer else ""
    if not isinstance(answer, str):
        raise TaskError(
            f"an example's answer must be a text, not {answer!r}", where=where, hint="see `doc_to_target`"
        )
    return answer


def prompt_from_turns(turns: Sequence[Turn], *, chat: bool, multiturn: bool) -> Prompt:
    """The prompt these turns make."""
    if not chat:
        return Prompt.of_text("".join([turn.content + turn.delimiter for turn in turns]))
    if not multiturn:
        turns = _merge_into_single_turn(turns)
    return Prompt(tuple(Message(turn.role, (Text(turn.content),)) for turn in turns), chat=True)


def _merge_into_single_turn(turns: Sequence[Turn]) -> list[Turn]:
    """System and an open assistant turn kept; everything between becomes one user message."""
    system = list(turns[:1]) if turns[0].role == "system" else []
    rest = list(turns[len(system) :])
    tail = [rest.pop()] if rest[-1].role == "assistant" else []
    text = "".join(turn.content + turn.delimiter for turn in rest[:-1]) + rest[-1].content
    return [*system, Turn("user", text), *tail]
