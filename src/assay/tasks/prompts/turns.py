"""Turns: the parts of a prompt before it becomes plain text or chat messages.

In plain text, its delimiter follows each turn. In a chat, delimiters are dropped, or the turns become one user message.
Prompts are byte for byte those of lm_eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Number
from typing import Any, NamedTuple

from assay.core.errors import TaskError
from assay.core.records.messages import Message, Prompt, Role, Text

__all__ = ["Turn", "build_question_turns", "join_texts", "prompt_from_turns"]


class Turn(NamedTuple):
    """The text of one role, and the delimiter that follows it in plain text."""

    role: Role
    content: str
    delimiter: str = ""


def join_texts(prefix: str | None, suffix: str | None, delimiter: str) -> str:
    """Join two texts with a delimiter, unless one is empty or white space separates them already.

    >>> join_texts("Be brief.", "Questions:", " "), join_texts("Be brief. ", "Questions:", " ")
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
    """Build the turns of a question: with an answer for a few-shot example, without for the document."""
    if not isinstance(question, str):
        raise TaskError(f"the question must be text, not {question!r}", where=where, hint="see `doc_to_text`")
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
    if choices and isinstance(answer, Integral):
        answer = int(answer)
        if not -len(choices) <= answer < len(choices):
            raise TaskError(
                f"the answer of a few-shot example is choice {answer} of {len(choices)}", where=where
            )
        answer = choices[answer]
    elif isinstance(answer, list):
        answer = answer[0] if answer else ""
    if isinstance(answer, Number):
        return str(answer)
    if not isinstance(answer, str):
        raise TaskError(
            f"the answer of a few-shot example must be text, not {answer!r}",
            where=where,
            hint="see `doc_to_target`",
        )
    return answer


def prompt_from_turns(turns: Sequence[Turn], *, chat: bool, multiturn: bool) -> Prompt:
    """Build a prompt from turns."""
    if not chat:
        return Prompt.of_text("".join([turn.content + turn.delimiter for turn in turns]))
    if not multiturn:
        turns = _merge_into_single_turn(turns)
    return Prompt(tuple(Message(turn.role, (Text(turn.content),)) for turn in turns), chat=True)


def _merge_into_single_turn(turns: Sequence[Turn]) -> list[Turn]:
    """Merge everything between the system turn and an open assistant turn into one user turn."""
    system = list(turns[:1]) if turns[0].role == "system" else []
    rest = list(turns[len(system) :])
    tail = [rest.pop()] if rest[-1].role == "assistant" else []
    text = "".join(turn.content + turn.delimiter for turn in rest[:-1]) + rest[-1].content
    return [*system, Turn("user", text), *tail]
