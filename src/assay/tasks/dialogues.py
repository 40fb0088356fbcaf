"""Dialogues: tasks whose helper function builds the next question after each answer.

    doc_to_text(doc, lmms_eval_specific_kwargs, previous_output, round_idx, previous_round_info)
        -> (visuals, text, terminal, previous_output, round_info)

The first question is result like any other. Then the helper is called with all answers so far until it says
`terminal`. Each round is a prompt of its own: what the model is to remember, the helper writes into the text.
Knows nothing of models or journals: the answers are handed in.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.core.errors import InvalidOption, TaskError
from assay.core.records.dialogues import Dialogue, DialogueResult
from assay.core.records.documents import Document
from assay.core.records.messages import Message, Part, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.specs import TaskSpec
from assay.tasks.documents import TaskDocuments
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.prompts.media_parts import to_media_part
from assay.tasks.prompts.tool_prompts import write_tools_as_text

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
    """Return the settings for the model, without the maximum number of agent steps."""
    if not spec.output_type.is_agentic or MAX_STEPS_KEY not in settings.values:
        return settings
    return Settings({key: value for key, value in settings.values.items() if key != MAX_STEPS_KEY})


def check_dialogue(task: TaskDocuments) -> None:
    """Check a dialogue before the first request.

    Raises:
        TaskError: No function builds the later rounds.
        InvalidOption: The maximum number of steps is invalid.
    """
    if task.spec.output_type.is_dialogue and not task.spec.output_type.is_agent:
        _find_round_function(task)
        if task.spec.output_type.is_agentic:
            _max_steps(task)


def open_dialogue(task: TaskDocuments, document: Document, first: Generate) -> Dialogue:
    """Open the dialogue that starts with this request."""
    if task.spec.output_type.is_agentic:
        return _AgenticDialogue(task, document, first)
    return _MultiRoundDialogue(task, document, first)


def accepts_round_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function accepts any of the arguments about previous rounds."""
    return not _find_arguments(function).isdisjoint(ROUND_ARGUMENTS)


def _find_arguments(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the dialogue arguments that a function accepts."""
    loaded = function.load() if isinstance(function, HelperFunction) else function
    parameters = inspect.signature(loaded).parameters
    names = (*ROUND_ARGUMENTS, "lmms_eval_specific_kwargs")
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return frozenset(name for name in names if takes_any or name in parameters)


class _RoundFunction:
    """The function that builds the later rounds. Passes only the arguments that it accepts."""

    def __init__(self, function: Callable[..., Any], keywords: Mapping[str, Any] | None, key: str) -> None:
        self._function = function
        self._keywords = keywords
        self.key = key
        self._accepts = _find_arguments(function)

    def __call__(self, document: Document, **round_arguments: Any) -> Any:
        # Copies, because dialogues run concurrently and the function may change the row or the keywords.
        keywords = dict(self._keywords) if isinstance(self._keywords, Mapping) else self._keywords
        given = {"lmms_eval_specific_kwargs": keywords, **round_arguments}
        return self._function(
            _copy_document(document.fields), **{name: given[name] for name in given if name in self._accepts}
        )


def _copy_document(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy the row for each round, including nested values, which the helper function of an agent may change."""
    row = copy_fields(fields)
    return {key: _copy_nested(value) for key, value in row.items()} if type(row) is dict else row


def _copy_nested(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy_nested(item) for key, item in value.items()}
    return [_copy_nested(item) for item in value] if type(value) is list else value


def _find_round_function(task: TaskDocuments) -> _RoundFunction:
    """Return `doc_to_messages` if the task has it and the model accepts messages, otherwise `doc_to_text`."""
    spec, keywords = task.spec, task.multimodal.keywords
    messages = task.multimodal.doc_to_messages if task.rendering.chat_messages else None
    key = "doc_to_text" if messages is None else "doc_to_messages"
    function = spec.doc_to_text if messages is None else messages
    if not callable(function):
        raise TaskError(
            f"a {spec.output_type} task needs a function as `{key}`: it builds the later rounds",
            where=spec.place(key),
            hint=f"`{key}: !function utils.{key}`",
        )
    rounds = _RoundFunction(function, keywords, key)
    if key == "doc_to_text" and not accepts_round_arguments(function):
        raise TaskError(
            "`doc_to_text` does not accept arguments about previous rounds",
            where=spec.place(key),
            hint=f"it needs the arguments {', '.join(ROUND_ARGUMENTS)}",
        )
    return rounds


def _max_steps(task: TaskDocuments) -> int:
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


class _RoundDialogue:
    """A dialogue in rounds: handles each answer once and builds the next prompt."""

    def __init__(self, task: TaskDocuments, document: Document, first: Generate) -> None:
        self._task = task
        self._document = document
        self._chat = first.prompt.chat
        self._request_template = replace(first, prompt=Prompt.of_text(""))
        """The first request without its prompt, to release its media."""

        self._round_function = _find_round_function(task)
        self._rounds_done = 0
        self._step: Generate | DialogueResult = first
        self._outputs: list[Any] = []
        self._info: Any = None

    def next(self, turns: Sequence[str]) -> Generate | DialogueResult:
        """Return the next request after these answers, or the end of the dialogue."""
        for turn in turns[self._rounds_done :]:
            if isinstance(self._step, DialogueResult):
                break
            self._rounds_done += 1
            self._step = self._handle_answer(turn)
        return self._step

    def _handle_answer(self, turn: str) -> Generate | DialogueResult:
        raise NotImplementedError

    def _next_request(self, prompt: Prompt) -> Generate:
        return replace(
            self._request_template, prompt=prompt, index=self._rounds_done, round=self._rounds_done
        )

    def _to_parts(self, visuals: Any) -> list[Part]:
        where = self._task.spec.place(self._round_function.key)
        return [to_media_part(value, where=where) for value in visuals or ()]

    def _build_prompt(self, media: Sequence[Part], text: Any) -> Prompt:
        """Build the prompt of a round: one user message with its media and its text."""
        if not isinstance(text, str):
            raise self._round_error(f"the text must be a string, not {text!r:.80}")
        rendering = self._task.rendering
        chat = self._chat or (bool(media) and rendering.chat_messages)
        system = None if self._task.multimodal.is_active else rendering.system_instruction
        if not chat:
            return Prompt((Message("user", (*media, Text((system or "") + text))),))
        begin = (Message("system", (Text(system),)),) if system else ()
        return Prompt((*begin, Message("user", (*media, Text(text)))), chat=True)

    def _check_outputs(self, outputs: Any) -> list[Any]:
        """Check `previous_output`, which a round returns to replace the answers so far."""
        if isinstance(outputs, (list, tuple)):
            return list(outputs)
        raise self._round_error(f"`previous_output` must be a list, not {outputs!r:.80}")

    def _round_error(self, what: str) -> TaskError:
        return TaskError(
            f"round {self._rounds_done}: {what}",
            where=self._task.spec.place(self._round_function.key),
            hint="a round is (visuals, text, terminal, previous_output, round_info)",
        )


class _MultiRoundDialogue(_RoundDialogue):
    """`generate_until_multi_round`: the final answer is the list of the answers of all rounds."""

    def _handle_answer(self, turn: str) -> Generate | DialogueResult:
        self._outputs.append(turn)
        result = self._round_function(
            self._document,
            previous_output=list(self._outputs),
            round_idx=self._rounds_done,
            previous_round_info=self._info,
        )
        if self._round_function.key == "doc_to_messages":
            return self._handle_messages(result)
        if isinstance(result, str):  # the function returned only the next text
            return self._next_request(self._build_prompt((), result))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise self._round_error(f"`doc_to_text` returned {result!r:.80}")
        visuals, text, terminal, outputs, self._info = result
        self._set_outputs(outputs)
        if terminal:
            return self._finish()
        return self._next_request(self._build_prompt(self._to_parts(visuals), text))

    def _handle_messages(self, result: Any) -> Generate | DialogueResult:
        """Handle `(messages, terminal, previous_output, round_info)`. Any other value ends the dialogue."""
        if not (isinstance(result, tuple) and len(result) == 4):
            return self._finish()
        messages, terminal, outputs, self._info = result
        self._set_outputs(outputs)
        if terminal:
            return self._finish()
        prompt = self._task.multimodal.prompt_from_messages(messages)
        if self._task.tool_syntax:
            prompt = write_tools_as_text(prompt, self._request_template.tools, self._task.tool_syntax)
        return self._next_request(prompt)

    def _set_outputs(self, outputs: Any) -> None:
        if outputs is not None:
            self._outputs = self._check_outputs(outputs)

    def _finish(self) -> DialogueResult:
        return DialogueResult(answer=list(self._outputs))


class _AgenticDialogue(_RoundDialogue):
    """`generate_until_agentic`: the final answer is one text, usually JSON from the helper function."""

    def __init__(self, task: TaskDocuments, document: Document, first: Generate) -> None:
        super().__init__(task, document, first)
        self._max_steps = _max_steps(task)
        last = first.prompt.messages[-1]
        self._current_text = last.text
        self._current_media: list[Part] = [part for part in last.parts if not isinstance(part, Text)]
        self._current_prompt = first.prompt
        self._record = AgentTrace(full=task.rendering.agentic_trace_mode == "full")

    def _handle_answer(self, turn: str) -> Generate | DialogueResult:
        self._outputs.append(turn)
        self._record.final = turn
        asked = self._current_text
        result = self._round_function(
            self._document,
            previous_output=self._outputs,
            round_idx=self._rounds_done,
            previous_round_info=self._info,
        )
        if isinstance(result, str):
            self._set_question(None, result)
        elif isinstance(result, tuple) and len(result) == 5:
            visuals, text, terminal, outputs, self._info = result
            if outputs is not None:
                self._outputs = self._check_outputs(outputs)
                self._record.final = self._outputs[-1] if self._outputs else turn
            self._record.add(
                number=self._rounds_done,
                prompt=asked,
                reply=turn,
                end=bool(terminal),
                info=self._info,
                text=text,
            )
            if terminal:
                return self._finish()
            self._set_question(visuals, text)
        else:
            return self._finish()
        return (
            self._finish()
            if self._rounds_done >= self._max_steps
            else self._next_request(self._current_prompt)
        )

    def _set_question(self, visuals: Any, text: Any) -> None:
        """Set the next question. Media or text that a round does not return stay the same."""
        if visuals is None and text is None:
            return
        self._current_media = self._current_media if visuals is None else self._to_parts(visuals)
        self._current_text = self._current_text if text is None else text
        self._current_prompt = self._build_prompt(self._current_media, self._current_text)

    def _finish(self) -> DialogueResult:
        return DialogueResult(answer=self._record.build_answer(self._info, self._outputs))


_STATE_KEYS = ("cash", "days_elapsed", "inventory", "mobile_data_working")
"""Entries of the state that are copied to the top level, where helper functions of lmms_eval expect them."""


@dataclass(slots=True)
class AgentTrace:
    """The steps of an agent and its final answer.

    A helper function returns JSON when the agent submits. For an agent that never submits, the trace builds the answer:
    not successful, with the state it reached.
    """

    full: bool = False
    final: Any = ""
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *, number: int, prompt: str, reply: str, end: bool, info: Any, text: Any) -> None:
        """Record one step if the trace mode is `full`."""
        if not self.full:
            return
        step: dict[str, Any] = {
            "round_idx": number,
            "round_input": prompt,
            "model_output": reply,
            "terminal": end,
        }
        if isinstance(info, Mapping):
            step["state"] = info.get("state")
            step["tool_result"] = info.get("last_tool_result")
            for key in ("tool_calls", "valid_tool_calls", "invalid_steps"):
                step[key] = info.get(key)
        if text is not None:
            step["next_input"] = text
        self.steps.append(json.loads(json.dumps(step, default=str)))  # a copy, because states change in place

    def build_answer(self, info: Any, outputs: list[Any]) -> Any:
        """Build the text that is scored."""
        final = self.final
        if info is not None and not (isinstance(final, str) and final.strip().startswith("{")):
            final = json.dumps(_build_failure(info, final, outputs), ensure_ascii=False)
        return self._with_steps(final) if self.full else final

    def _with_steps(self, final: Any) -> Any:
        try:
            said = json.loads(final)
        except (TypeError, ValueError, RecursionError):
            return final
        if not isinstance(said, dict):
            return final
        said |= {"agentic_trace_mode": "full", "agentic_rounds": self.steps}
        return json.dumps(said, ensure_ascii=False)


def _build_failure(info: Any, final: Any, outputs: list[Any]) -> dict[str, Any]:
    """Build the answer of an agent that did not submit one."""
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
