"""Examples before the question: where they come from, which are taken, how they are written.

A prompt is a list of turns. As plain text, each turn is followed by its delimiter; as a chat, delimiters
vanish or the turns collapse into one user message. Byte for byte what lm-evaluation-harness sends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from assay.core.errors import BadTask
from assay.core.messages import Message, Prompt, Role, Text

__all__ = ["Sampler", "Turn", "join", "question_turns", "to_prompt"]

Fields = Mapping[str, Any]


class Turn(NamedTuple):
    """What one side says, and what follows it in plain text."""

    role: Role
    content: str
    delimiter: str = ""


def join(prefix: str | None, suffix: str | None, delimiter: str) -> str:
    """Two texts with a delimiter between, unless one side is empty or the border is white space already.

    >>> join("Be brief.", "Questions:", " "), join("Be brief. ", "Questions:", " ")
    ('Be brief. Questions:', 'Be brief. Questions:')
    """
    if not prefix or not suffix:
        return (prefix or "") + (suffix or "")
    return prefix + suffix if prefix[-1].isspace() or suffix[0].isspace() else prefix + delimiter + suffix


def question_turns(
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
        raise BadTask(f"the question must be a text, not {question!r}", where=where, hint="see `doc_to_text`")
    answered = answer is not None and answer != ""
    if prefix:
        touching = question == "" or question[-1].isspace() or prefix[0].isspace()
        delimiter = "" if touching else target_delimiter
    else:
        delimiter = target_delimiter if answered else ""
    turns = [Turn("user", question, delimiter)]
    if answered:
        turns.append(Turn("assistant", join(prefix, _answer_text(answer, choices, where), " "), after))
    elif prefix:
        turns.append(Turn("assistant", prefix))
    return turns


def _answer_text(answer: Any, choices: Sequence[str] | None, where: str) -> str:
    if choices and isinstance(answer, int):
        if not -len(choices) <= answer < len(choices):
            raise BadTask(
                f"an example's answer is choice {answer}, but there are {len(choices)}", where=where
            )
        answer = choices[answer]
    elif isinstance(answer, list):
        answer = answer[0] if answer else ""
    if not isinstance(answer, str):
        raise BadTask(
            f"an example's answer must be a text, not {answer!r}", where=where, hint="see `doc_to_target`"
        )
    return answer


def to_prompt(turns: Sequence[Turn], *, chat: bool, multiturn: bool) -> Prompt:
    """The prompt these turns make."""
    if not chat:
        return Prompt.of_text("".join([turn.content + turn.delimiter for turn in turns]))
    if not multiturn:
        turns = _single_turn(turns)
    return Prompt(tuple(Message(turn.role, (Text(turn.content),)) for turn in turns), chat=True)


def _single_turn(turns: Sequence[Turn]) -> list[Turn]:
    """System and an open assistant turn kept; everything between becomes one user message."""
    system = list(turns[:1]) if turns[0].role == "system" else []
    rest = list(turns[len(system) :])
    tail = [rest.pop()] if rest[-1].role == "assistant" else []
    text = "".join(turn.content + turn.delimiter for turn in rest[:-1]) + rest[-1].content
    return [*system, Turn("user", text), *tail]


class Sampler:
    """Chooses examples. One generator per pass over a task, consumed in document order.

    `pick(n, document)` gives positions in the pool; `document` is the one being asked when the pool is its own
    split, so that it never becomes its own example.
    """

    def __init__(self, kind: str, pool: Sequence[Fields], seed: int | None, *, where: str = "") -> None:
        if kind not in ("default", "first_n"):
            raise BadTask(
                f"no few-shot sampler is called `{kind}`", where=where, hint="`default` or `first_n`"
            )
        self.fixed = kind == "first_n"
        self.pool = pool
        self._where = where
        self._random = random.Random(seed)

    def pick(self, count: int, document: Fields | None = None) -> list[int]:
        """Positions of `count` examples."""
        picked = self._first(count, document) if self.fixed else self._sample(count, document)
        if len(picked) < count:
            others = sum(row != document for row in self.pool)
            raise BadTask(
                f"{count} few-shot examples are wanted, but the pool has {others}",
                where=self._where,
                hint="lower num_fewshot, or name a larger fewshot_split",
            )
        return picked

    def pick_others(self, count: int, document: Fields, *, one_more: bool) -> list[int]:
        """lmms-eval's way: draw that many, or one more where the pool is the evaluated split, then leave the document
        itself out. There may be one example less than asked for."""
        wanted = min(count + one_more, len(self.pool))
        drawn = list(range(wanted)) if self.fixed else self._random.sample(range(len(self.pool)), wanted)
        return [at for at in drawn if self.pool[at] != document][:count]

    def _first(self, count: int, document: Fields | None) -> list[int]:
        if document is None:
            return list(range(min(count, len(self.pool))))
        others = (at for at, row in enumerate(self.pool) if row != document)
        return list(islice(others, count))

    def _sample(self, count: int, document: Fields | None) -> list[int]:
        everything = range(len(self.pool))
        wanted = count if document is None else count + 1
        if wanted > len(everything):
            return list(everything)[:count] if document is None and count == len(everything) else []
        drawn = self._random.sample(everything, wanted)
        if not document:
            return drawn
        kept = [at for at in drawn if self.pool[at] != document][:count]
        if len(kept) < count:
            others = [at for at in everything if self.pool[at] != document]
            kept = self._random.sample(others, count) if count <= len(others) else others
        return kept


_MOST_REMEMBERED = 50_000
"""Examples kept in memory, some 20 MB."""


def remembered(make: Callable[[int], list[Turn]]) -> Callable[[Iterable[int]], list[Turn]]:
    """Each example of the pool is written once, however often it is drawn; in a huge pool the first ones drawn are."""
    written: dict[int, list[Turn]] = {}

    def turns(positions: Iterable[int]) -> list[Turn]:
        collected: list[Turn] = []
        for at in positions:
            example = written.get(at)
            if example is None:
                example = make(at)
                if len(written) < _MOST_REMEMBERED:
                    written[at] = example
            collected += example
        return collected

    return turns
