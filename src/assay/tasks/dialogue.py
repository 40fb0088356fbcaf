"""Dialogues: tasks whose helper decides, after each answer, what is asked next.

    doc_to_text(doc, lmms_eval_specific_kwargs, previous_output, round_idx, previous_round_info)
        -> (visuals, text, terminal, previous_output, round_info)

The first question is made like any other. Then the helper is called with all answers so far until it says
`terminal`. Each round is a prompt of its own: what the model is to remember, the helper writes into the text.
Knows nothing of models or journals: the answers are handed in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.core.dialogues import Dialogue, Finished
from assay.core.documents import Document
from assay.core.errors import BadOption, BadTask
from assay.core.messages import Message, Part, Prompt, Text
from assay.core.requests import Generate, Settings
from assay.core.specs import TaskSpec
from assay.tasks.agentic import AgenticRecord
from assay.tasks.functions import HelperFunction
from assay.tasks.makers import loan
from assay.tasks.media import media_part

if TYPE_CHECKING:
    from assay.tasks.task import Task

__all__ = [
    "ROUND_ARGUMENTS",
    "STEPS_KEY",
    "check_dialogue",
    "hears_rounds",
    "is_dialogue",
    "open_dialogue",
    "request_settings",
]

STEPS_KEY = "max_agentic_steps"
_DEFAULT_STEPS = 12
ROUND_ARGUMENTS = ("previous_output", "round_idx", "previous_round_info")


def is_dialogue(spec: TaskSpec) -> bool:
    """Whether the answers to a task's questions lead to further questions."""
    return spec.output_type in ("generate_until_multi_round", "generate_until_agentic")


def request_settings(spec: TaskSpec, settings: Settings) -> Settings:
    """The settings as a model gets them: how many steps an agent may take is not its business."""
    if spec.output_type != "generate_until_agentic" or STEPS_KEY not in settings.values:
        return settings
    return Settings({key: value for key, value in settings.values.items() if key != STEPS_KEY})


def check_dialogue(task: Task) -> None:
    """What can be wrong with a dialogue before the first answer.

    Raises:
        BadTask: Nothing makes the later rounds.
        BadOption: The number of steps is not one.
    """
    if is_dialogue(task.spec):
        _rounds_of(task)
        if task.spec.output_type == "generate_until_agentic":
            _steps(task)


def open_dialogue(task: Task, document: Document, first: Generate) -> Dialogue:
    """The dialogue that begins with this question."""
    if task.spec.output_type == "generate_until_agentic":
        return _Agentic(task, document, first)
    return _MultiRound(task, document, first)


def hears_rounds(function: Callable[..., Any]) -> bool:
    """Whether a function takes anything of what the rounds before came to."""
    return not _taken(function).isdisjoint(ROUND_ARGUMENTS)


def _taken(function: Callable[..., Any]) -> frozenset[str]:
    """What of the protocol a function takes, by name."""
    loaded = function.load() if isinstance(function, HelperFunction) else function
    parameters = inspect.signature(loaded).parameters
    names = (*ROUND_ARGUMENTS, "lmms_eval_specific_kwargs")
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return frozenset(name for name in names if takes_any or name in parameters)


class _Rounds:
    """The function that makes the later rounds, called with what it takes."""

    def __init__(self, function: Callable[..., Any], keywords: Mapping[str, Any] | None, key: str) -> None:
        self._function = function
        self._keywords = keywords
        self.key = key
        self._takes = _taken(function)

    def __call__(self, document: Document, **told: Any) -> Any:
        # Copies: what one round scribbles on the row or the keywords must not depend on who else is talking.
        keywords = dict(self._keywords) if isinstance(self._keywords, Mapping) else self._keywords
        given = {"lmms_eval_specific_kwargs": keywords, **told}
        return self._function(
            _fresh(document.fields), **{name: given[name] for name in given if name in self._takes}
        )


def _fresh(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row as it was read, for each round: an agent's helper may change states deep inside it."""
    row = loan(fields)
    return {key: _copied(value) for key, value in row.items()} if type(row) is dict else row


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def _rounds_of(task: Task) -> _Rounds:
    """`doc_to_messages` where the model takes messages and the task writes them, else `doc_to_text`."""
    spec, keywords = task.spec, task.visuals.keywords
    messages = task.visuals.messages if task.rendering.chat_messages else None
    key = "doc_to_text" if messages is None else "doc_to_messages"
    function = spec.doc_to_text if messages is None else messages
    if not callable(function):
        raise BadTask(
            f"a {spec.output_type} task needs a function as `{key}`: it makes the later rounds",
            where=spec.place(key),
            hint=f"`{key}: !function utils.{key}`",
        )
    rounds = _Rounds(function, keywords, key)
    if key == "doc_to_text" and not hears_rounds(function):
        raise BadTask(
            "`doc_to_text` is not told of the rounds before",
            where=spec.place(key),
            hint=f"it must take {', '.join(ROUND_ARGUMENTS)}",
        )
    return rounds


def _steps(task: Task) -> int:
    given = task.settings.values.get(STEPS_KEY, _DEFAULT_STEPS)
    try:
        steps = int(given)
        if steps < 1:
            raise ValueError
    except (TypeError, ValueError):
        raise BadOption(
            f"`{STEPS_KEY}` must be a whole number above 0, not {given!r}",
            where=task.spec.place("generation_kwargs"),
        ) from None
    return steps


class _Talk:
    """What both kinds of dialogue share: hearing each answer once, and making the next prompt."""

    def __init__(self, task: Task, document: Document, first: Generate) -> None:
        self._task = task
        self._document = document
        self._chat = first.prompt.chat
        self._again = replace(first, prompt=Prompt.of_text(""))
        """The first request without its prompt, whose media need not be held."""

        self._rounds = _rounds_of(task)
        self._heard = 0
        self._step: Generate | Finished = first
        self._outputs: list[Any] = []
        self._info: Any = None

    def next(self, turns: Sequence[str]) -> Generate | Finished:
        """What to ask after these answers."""
        for turn in turns[self._heard :]:
            if isinstance(self._step, Finished):
                break
            self._heard += 1
            self._step = self._hear(turn)
        return self._step

    def _hear(self, turn: str) -> Generate | Finished:
        raise NotImplementedError

    def _ask(self, prompt: Prompt) -> Generate:
        return replace(self._again, prompt=prompt, index=self._heard, round=self._heard)

    def _media(self, visuals: Any) -> list[Part]:
        where = self._task.spec.place(self._rounds.key)
        return [media_part(value, where=where) for value in visuals or ()]

    def _prompt(self, media: Sequence[Part], text: Any) -> Prompt:
        """A round's prompt: its media, then its text, as one user message."""
        if not isinstance(text, str):
            raise self._not_a_round(f"there must be a text to ask, not {text!r:.80}")
        rendering = self._task.rendering
        chat = self._chat or (bool(media) and rendering.chat_messages)
        system = None if self._task.visuals.active else rendering.system_instruction
        if not chat:
            return Prompt((Message("user", (*media, Text((system or "") + text))),))
        begin = (Message("system", (Text(system),)),) if system else ()
        return Prompt((*begin, Message("user", (*media, Text(text)))), chat=True)

    def _replaced(self, outputs: Any) -> list[Any]:
        """The fourth thing a round returns: what the answers are from now on."""
        if isinstance(outputs, (list, tuple)):
            return list(outputs)
        raise self._not_a_round(f"`previous_output` must be a list, not {outputs!r:.80}")

    def _not_a_round(self, what: str) -> BadTask:
        return BadTask(
            f"round {self._heard}: {what}",
            where=self._task.spec.place(self._rounds.key),
            hint="a round is (visuals, text, terminal, previous_output, round_info)",
        )


class _MultiRound(_Talk):
    """`generate_until_multi_round`: judged by the list of all rounds' answers."""

    def _hear(self, turn: str) -> Generate | Finished:
        self._outputs.append(turn)
        made = self._rounds(
            self._document,
            previous_output=list(self._outputs),
            round_idx=self._heard,
            previous_round_info=self._info,
        )
        if self._rounds.key == "doc_to_messages":
            return self._messages(made)
        if isinstance(made, str):  # a helper that only ever writes the next text
            return self._ask(self._prompt((), made))
        if not (isinstance(made, tuple) and len(made) == 5):
            raise self._not_a_round(f"`doc_to_text` returned {made!r:.80}")
        visuals, text, terminal, outputs, self._info = made
        self._take(outputs)
        if terminal:
            return self._finished()
        return self._ask(self._prompt(self._media(visuals), text))

    def _messages(self, made: Any) -> Generate | Finished:
        """`doc_to_messages` gives (messages, terminal, previous_output, round_info); anything else is the end."""
        if not (isinstance(made, tuple) and len(made) == 4):
            return self._finished()
        messages, terminal, outputs, self._info = made
        self._take(outputs)
        if terminal:
            return self._finished()
        return self._ask(self._task.visuals.written(messages))

    def _take(self, outputs: Any) -> None:
        if outputs is not None:
            self._outputs = self._replaced(outputs)

    def _finished(self) -> Finished:
        return Finished(answer=list(self._outputs))


class _Agentic(_Talk):
    """`generate_until_agentic`: judged by one text, as a rule JSON that the helper writes at the end."""

    def __init__(self, task: Task, document: Document, first: Generate) -> None:
        super().__init__(task, document, first)
        self._steps = _steps(task)
        last = first.prompt.messages[-1]
        self._text = last.text
        self._standing: list[Part] = [part for part in last.parts if not isinstance(part, Text)]
        self._asking = first.prompt
        self._record = AgenticRecord(full=task.rendering.agentic_trace_mode == "full")

    def _hear(self, turn: str) -> Generate | Finished:
        self._outputs.append(turn)
        self._record.final = turn
        asked = self._text
        made = self._rounds(
            self._document,
            previous_output=self._outputs,
            round_idx=self._heard,
            previous_round_info=self._info,
        )
        if isinstance(made, str):
            self._turn_to(None, made)
        elif isinstance(made, tuple) and len(made) == 5:
            visuals, text, terminal, outputs, self._info = made
            if outputs is not None:
                self._outputs = self._replaced(outputs)
                self._record.final = self._outputs[-1] if self._outputs else turn
            self._record.add(
                number=self._heard, asked=asked, said=turn, end=bool(terminal), info=self._info, text=text
            )
            if terminal:
                return self._finished()
            self._turn_to(visuals, text)
        else:
            return self._finished()
        return self._finished() if self._heard >= self._steps else self._ask(self._asking)

    def _turn_to(self, visuals: Any, text: Any) -> None:
        """The next question; what a round does not give stays as it was."""
        if visuals is None and text is None:
            return
        self._standing = self._standing if visuals is None else self._media(visuals)
        self._text = self._text if text is None else text
        self._asking = self._prompt(self._standing, self._text)

    def _finished(self) -> Finished:
        return Finished(answer=self._record.closed(self._info, self._outputs))
