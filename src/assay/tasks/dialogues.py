"""Dialogues: tasks whose helper decides, after each answer, what is asked next.

    doc_to_text(doc, lmms_eval_specific_kwargs, previous_output, round_idx, previous_round_info)
        -> (visuals, text, terminal, previous_output, round_info)

The first question is made like any other. Then the helper is called with all answers so far until it says
`terminal`. Each round is a prompt of its own: what the model is to remember, the helper writes into the text.
Knows nothing of models or journals: the answers are handed in.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.core.dialogues import Dialogue, DialogueResult
from assay.core.documents import Document
from assay.core.errors import InvalidOption, TaskError
from assay.core.messages import Message, Part, Prompt, Text
from assay.core.requests import Generate, Settings
from assay.core.specs import TaskSpec
from assay.tasks.documents import TaskDocuments
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.prompts.media_parts import to_media_part

__all__ = [
    "MAX_STEPS_KEY",
    "ROUND_ARGUMENTS",
    "accepts_round_arguments",
    "check_dialogue",
    "open_dialogue",
    "request_settings",
]

MAX_STEPS_KEY = "max_agentic_steps"
_DEFAULT_MAX_STEPS = 12
ROUND_ARGUMENTS = ("previous_output", "round_idx", "previous_round_info")


def request_settings(spec: TaskSpec, settings: Settings) -> Settings:
    """The settings as a model gets them: how many steps an agent may take is not its business."""
    if not spec.output_type.is_agentic or MAX_STEPS_KEY not in settings.values:
        return settings
    return Settings({key: value for key, value in settings.values.items() if key != MAX_STEPS_KEY})


def check_dialogue(task: TaskDocuments) -> None:
    """What can be wrong with a dialogue before the first answer.

    Raises:
        TaskError: Nothing makes the later rounds.
        InvalidOption: The number of steps is not one.
    """
    if task.spec.output_type.is_dialogue:
        _find_round_function(task)
        if task.spec.output_type.is_agentic:
            _steps(task)


def open_dialogue(task: TaskDocuments, document: Document, first: Generate) -> Dialogue:
    """The dialogue that begins with this question."""
    if task.spec.output_type.is_agentic:
        return _Agentic(task, document, first)
    return _MultiRound(task, document, first)


def accepts_round_arguments(function: Callable[..., Any]) -> bool:
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
    row = copy_fields(fields)
    return {key: _copied(value) for key, value in row.items()} if type(row) is dict else row


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def _find_round_function(task: TaskDocuments) -> _Rounds:
    """`doc_to_messages` where the model takes messages and the task writes them, else `doc_to_text`."""
    spec, keywords = task.spec, task.multimodal.keywords
    messages = task.multimodal.doc_to_messages if task.rendering.chat_messages else None
    key = "doc_to_text" if messages is None else "doc_to_messages"
    function = spec.doc_to_text if messages is None else messages
    if not callable(function):
        raise TaskError(
            f"a {spec.output_type} task needs a function as `{key}`: it makes the later rounds",
            where=spec.place(key),
            hint=f"`{key}: !function utils.{key}`",
        )
    rounds = _Rounds(function, keywords, key)
    if key == "doc_to_text" and not accepts_round_arguments(function):
        raise TaskError(
            "`doc_to_text` is not told of the rounds before",
            where=spec.place(key),
            hint=f"it must take {', '.join(ROUND_ARGUMENTS)}",
        )
    return rounds


def _steps(task: TaskDocuments) -> int:
    given = task.settings.values.get(MAX_STEPS_KEY, _DEFAULT_MAX_STEPS)
    try:
        steps = int(given)
        if steps < 1:
            raise ValueError
    except (TypeError, ValueError):
        raise InvalidOption(
            f"`{MAX_STEPS_KEY}` must be a whole number above 0, not {given!r}",
            where=task.spec.place("generation_kwargs"),
        ) from None
    return steps


class _Talk:
    """What both kinds of dialogue share: hearing each answer once, and making the next prompt."""

    def __init__(self, task: TaskDocuments, document: Document, first: Generate) -> None:
        self._task = task
        self._document = document
        self._chat = first.prompt.chat
        self._again = replace(first, prompt=Prompt.of_text(""))
        """The first request without its prompt, whose media need not be held."""

        self._rounds = _find_round_function(task)
        self._heard = 0
        self._step: Generate | DialogueResult = first
        self._outputs: list[Any] = []
        self._info: Any = None

    def next(self, turns: Sequence[str]) -> Generate | DialogueResult:
        """What to ask after these answers."""
        for turn in turns[self._heard :]:
            if isinstance(self._step, DialogueResult):
                break
            self._heard += 1
            self._step = self._hear(turn)
        return self._step

    def _hear(self, turn: str) -> Generate | DialogueResult:
        raise NotImplementedError

    def _ask(self, prompt: Prompt) -> Generate:
        return replace(self._again, prompt=prompt, index=self._heard, round=self._heard)

    def _media(self, visuals: Any) -> list[Part]:
        where = self._task.spec.place(self._rounds.key)
        return [to_media_part(value, where=where) for value in visuals or ()]

    def _prompt(self, media: Sequence[Part], text: Any) -> Prompt:
        """A round's prompt: its media, then its text, as one user message."""
        if not isinstance(text, str):
            raise self._not_a_round(f"there must be a text to ask, not {text!r:.80}")
        rendering = self._task.rendering
        chat = self._chat or (bool(media) and rendering.chat_messages)
        system = None if self._task.multimodal.is_active else rendering.system_instruction
        if not chat:
            return Prompt((Message("user", (*media, Text((system or "") + text))),))
        begin = (Message("system", (Text(system),)),) if system else ()
        return Prompt((*begin, Message("user", (*media, Text(text)))), chat=True)

    def _replaced(self, outputs: Any) -> list[Any]:
        """The fourth thing a round returns: what the answers are from now on."""
        if isinstance(outputs, (list, tuple)):
            return list(outputs)
        raise self._not_a_round(f"`previous_output` must be a list, not {outputs!r:.80}")

    def _not_a_round(self, what: str) -> TaskError:
        return TaskError(
            f"round {self._heard}: {what}",
            where=self._task.spec.place(self._rounds.key),
            hint="a round is (visuals, text, terminal, previous_output, round_info)",
        )


class _MultiRound(_Talk):
    """`generate_until_multi_round`: judged by the list of all rounds' answers."""

    def _hear(self, turn: str) -> Generate | DialogueResult:
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

    def _messages(self, made: Any) -> Generate | DialogueResult:
        """`doc_to_messages` gives (messages, terminal, previous_output, round_info); anything else is the end."""
        if not (isinstance(made, tuple) and len(made) == 4):
            return self._finished()
        messages, terminal, outputs, self._info = made
        self._take(outputs)
        if terminal:
            return self._finished()
        return self._ask(self._task.multimodal.prompt_from_messages(messages))

    def _take(self, outputs: Any) -> None:
        if outputs is not None:
            self._outputs = self._replaced(outputs)

    def _finished(self) -> DialogueResult:
        return DialogueResult(answer=list(self._outputs))


class _Agentic(_Talk):
    """`generate_until_agentic`: judged by one text, as a rule JSON that the helper writes at the end."""

    def __init__(self, task: TaskDocuments, document: Document, first: Generate) -> None:
        super().__init__(task, document, first)
        self._steps = _steps(task)
        last = first.prompt.messages[-1]
        self._text = last.text
        self._standing: list[Part] = [part for part in last.parts if not isinstance(part, Text)]
        self._asking = first.prompt
        self._record = AgentTrace(full=task.rendering.agentic_trace_mode == "full")

    def _hear(self, turn: str) -> Generate | DialogueResult:
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

    def _finished(self) -> DialogueResult:
        return DialogueResult(answer=self._record.build_answer(self._info, self._outputs))


_STATE_KEYS = ("cash", "days_elapsed", "inventory", "mobile_data_working")
"""Entries of a state that are repeated at the top: helpers of lmms-eval's tasks look for them there."""


@dataclass(slots=True)
class AgentTrace:
    """One agent's steps and its last word."""

    full: bool = False
    final: Any = ""
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *, number: int, asked: str, said: str, end: bool, info: Any, text: Any) -> None:
        """Keep one step, where all are wanted."""
        if not self.full:
            return
        step: dict[str, Any] = {
            "round_idx": number,
            "round_input": asked,
            "model_output": said,
            "terminal": end,
        }
        if isinstance(info, Mapping):
            step["state"] = info.get("state")
            step["tool_result"] = info.get("last_tool_result")
            for key in ("tool_calls", "valid_tool_calls", "invalid_steps"):
                step[key] = info.get(key)
        if text is not None:
            step["next_input"] = text
        self.steps.append(json.loads(json.dumps(step, default=str)))  # as it was: states are changed in place

    def build_answer(self, info: Any, outputs: list[Any]) -> Any:
        """The text that is judged."""
        final = self.final
        if info is not None and not (isinstance(final, str) and final.strip().startswith("{")):
            final = json.dumps(_unfinished(info, final, outputs), ensure_ascii=False)
        return self._with_steps(final) if self.full else final

    def _with_steps(self, final: Any) -> Any:
        try:
            said = json.loads(final)
        except (TypeError, ValueError):
            return final
        if not isinstance(said, dict):
            return final
        said |= {"agentic_trace_mode": "full", "agentic_rounds": self.steps}
        return json.dumps(said, ensure_ascii=False)


def _unfinished(info: Any, final: Any, outputs: list[Any]) -> dict[str, Any]:
    """What stands for the answer of an agent that gave none."""
    known = info if isinstance(info, Mapping) else {}
    state = known.get("state", {})
    calls = known.get("tool_calls", 0)
    return {
        "success": False,
        "error": "max_agentic_steps_reached",
        "tool_calls": float(calls),
        "valid_tool_calls": float(known.get("valid_tool_calls", calls)),
        "invalid_steps": float(known.get("invalid_steps", 0.0)),
        "state": state,
        "last_model_output": final,
        "trace": outputs,
        **({key: state[key] for key in _STATE_KEYS if key in state} if isinstance(state, Mapping) else {}),
    }
