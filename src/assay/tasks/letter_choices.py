"""Multiple choice as generation (`--mc_as_generation`): label the choices with letters and ask the model for a letter.

For models without log-probabilities. The question differs from that of a `multiple_choice` task, so the score has
another name, `acc_letter`, and is never pooled with `acc`:

    {question}

    A. {first choice}
    B. {second choice}

    Answer with the letter of the right choice only.
    Answer:

Choices that are letters already (the question lists the texts itself) are not listed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from string import ascii_uppercase
from typing import Any

from assay.core.errors import TaskError, UnsupportedRequest
from assay.core.records.specs import (
    FewshotSpec,
    FilterStep,
    GroupMetric,
    GroupSpec,
    MetricSpec,
    OutputType,
    PipelineSpec,
    TaskSpec,
)
from assay.tasks.data.rows import Split
from assay.tasks.task import Task

__all__ = [
    "LETTER_METRIC",
    "LetterChoiceTask",
    "add_letter_metrics",
    "asks_for_letters",
    "describe_letter_tasks",
]

LETTER_METRIC = "acc_letter"
_INSTRUCTION = "Answer with the letter of the right choice only."
_ANSWER_PREFIX = "Answer:"
_DEFAULT_QUESTION = "Which of these is right?"
"""The question if the choices are the inputs."""

_MAX_TOKENS = 256

Fields = Mapping[str, Any]
FieldFunction = Callable[[Fields], Any]


class LetterChoiceTask(Task):
    """A multiple-choice task that asks for the letter of a choice."""

    def __init__(self, original: Task) -> None:
        _check_supported(original.spec)
        self.original = original
        super().__init__(_letter_spec(original), original.rendering, original.splits)

    @cached_property
    def rows(self) -> Split:
        """The rows of the original task: `process_docs` may use random numbers and must run once."""
        return self.original.rows


def asks_for_letters(task: Task) -> bool:
    """Return whether a task asks for letters in place of log-probabilities."""
    return isinstance(task, LetterChoiceTask)


def describe_letter_tasks(tasks: Mapping[str, Task]) -> list[str]:
    """Return notes for a run with tasks that ask for letters."""
    original = [name for name, task in tasks.items() if asks_for_letters(task)]
    if not original:
        return []
    named = ", ".join(original[:3]) + (", …" if len(original) > 3 else "")
    return [
        f"{named}: asks for the letter of a choice; `{LETTER_METRIC}` is not comparable with the `acc` of log-likelihoods"
    ]


def add_letter_metrics(
    groups: Mapping[str, GroupSpec], leaves: Callable[[str], Sequence[str]], tasks: Mapping[str, Task]
) -> dict[str, GroupSpec]:
    """Add `acc_letter` to every group that reports a metric of the original tasks."""
    changed = {}
    for name, group in groups.items():
        original = [
            task.original.spec
            for leaf in leaves(name)
            if isinstance(task := tasks.get(leaf), LetterChoiceTask)
        ]
        metrics = {metric.name for spec in original for metric in spec.metrics} | {"acc", "acc_norm"}
        wanted = next((one for one in group.metrics if one.metric in metrics), None) if original else None
        more = () if wanted is None else (_letter_metric(wanted),)
        changed[name] = replace(group, metrics=(*group.metrics, *more))
    return changed


def _letter_metric(wanted: GroupMetric) -> GroupMetric:
    aggregation = wanted.aggregation if isinstance(wanted.aggregation, str) else "mean"
    return GroupMetric(
        metric=LETTER_METRIC, aggregation=aggregation, weight_by_size=wanted.weight_by_size, filter_list=None
    )


def _check_supported(spec: TaskSpec) -> None:
    why = ""
    if spec.config.get("class") is not None:
        why = "it is a Python class"
    elif spec.process_results is not None:
        why = "its `process_results` expects log-probabilities"
    if why:
        raise UnsupportedRequest(
            f"`{spec.name}` cannot ask for letters: {why}",
            where=spec.place("process_results" if spec.process_results is not None else "class"),
            hint="leave it out, or use a model with log-probabilities",
        )


def _letter_spec(original: Task) -> TaskSpec:
    """Return the spec of a task that asks for a letter."""
    spec = original.spec
    letters = _LetterFields(original.question, original.target, original.choices, original)
    text, target, choices, _ = original.fewshot.compilers
    examples = _LetterFields(text, target, choices or (lambda fields: None), original)
    step = FilterStep(function="letter", arguments={"count": letters.count}, where=spec.place("output_type"))
    fewshot: FewshotSpec = replace(
        spec.fewshot,
        doc_to_text=examples.question,
        doc_to_target=examples.example_target,
        doc_to_choice=None,
        gen_prefix=None,
        target_delimiter=" ",
    )
    metric = MetricSpec(metric=LETTER_METRIC, aggregation="mean", higher_is_better=True)
    until = [] if original.rendering.chat else ["\n\n"]  # a base model would continue with new questions
    return replace(
        spec,
        output_type=OutputType.GENERATE_UNTIL,
        doc_to_text=letters.question,
        doc_to_target=letters.target,
        doc_to_choice=None,
        doc_to_messages=None,
        gen_prefix=None,
        target_delimiter=" ",
        fewshot=fewshot,
        generation_kwargs={"until": until, "do_sample": False, "max_gen_toks": _MAX_TOKENS},
        pipelines=(PipelineSpec(name="letter", steps=(step, FilterStep(function="take_first"))),),
        metrics=(metric,),
        repeats=1,
    )


class _LetterFields:
    """The question and target of a document whose choices have letters."""

    def __init__(
        self, text: FieldFunction, target: FieldFunction, choices: FieldFunction, original: Task
    ) -> None:
        self._text, self._target, self._choices = text, target, choices
        self._original = original

    def question(self, fields: Fields, *_: Any) -> str:
        """Return the question, the list of choices and the instruction."""
        choices = self._choice_texts(fields)
        text = _DEFAULT_QUESTION if self._original.shape[0] else str(self._text(fields))
        text = text.rstrip().removesuffix(_ANSWER_PREFIX).rstrip()
        if [choice.strip().strip("().:") for choice in choices] == list(ascii_uppercase[: len(choices)]):
            listed = ""  # the question lists them itself
        else:
            listed = "\n".join(
                f"{letter}. {choice.strip()}"
                for letter, choice in zip(ascii_uppercase, choices, strict=False)
            )
        return "\n\n".join(piece for piece in (text, listed, f"{_INSTRUCTION}\n{_ANSWER_PREFIX}") if piece)

    def target(self, fields: Fields, *_: Any) -> str | list[str]:
        """Return the letter of the correct choice, or a list if several are correct."""
        gold = self._text(fields) if self._original.shape[0] else self._target(fields)
        count = self.count(fields)
        if isinstance(gold, list):
            return [ascii_uppercase[self._choice_index(one, fields, count)] for one in gold]
        return ascii_uppercase[self._choice_index(gold, fields, count)]

    def example_target(self, fields: Fields, *_: Any) -> str:
        """Return the letter for a few-shot example."""
        found = self.target(fields)
        return found if isinstance(found, str) else found[0]

    def count(self, fields: Fields) -> int:
        """Return the number of choices."""
        return len(self._choices(fields) or ())

    def _choice_texts(self, fields: Fields) -> list[str]:
        choices = [str(choice) for choice in self._choices(fields) or ()]
        where = self._original.spec.place("doc_to_choice")
        if not 0 < len(choices) <= len(ascii_uppercase):
            raise TaskError(f"cannot label {len(choices)} choices with letters", where=where)
        if self._original.shape[0]:  # the choices are contexts and the target continues each of them
            end = f"{self._original.spec.target_delimiter}{self._target(fields)}"
            choices = [f"{choice}{end}" for choice in choices]
        return choices

    def _choice_index(self, gold: Any, fields: Fields, count: int) -> int:
        if isinstance(gold, str):
            choices = list(self._choices(fields) or ())
            gold = choices.index(gold) if gold in choices else -1
        if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < count:
            raise TaskError(
                f"the target {gold!r} is not one of the {count} choices",
                where=self._original.spec.place("doc_to_target"),
            )
        return gold
