"""Multiple choice asked as a question: the choices get letters, the model is asked for one (`--mc_as_generation`).

For models that give no log-probabilities. It is another question than the one a `multiple_choice` task asks, so its score
has another name, `acc_letter`, and is never pooled with `acc`:

    {question}

    A. {first choice}
    B. {second choice}

    Answer with the letter of the right choice only.
    Answer:

Choices that are letters already (a task that lists them itself) are not listed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from string import ascii_uppercase
from typing import Any

from assay.core.errors import TaskError, UnsupportedRequest
from assay.core.specs import (
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
_ASK = "Answer with the letter of the right choice only."
_END = "Answer:"
_WHICH = "Which of these is right?"
"""The question where the choices are whole texts."""

_MAX_TOKENS = 256

Fields = Mapping[str, Any]
Make = Callable[[Fields], Any]


class LetterChoiceTask(Task):
    """A multiple-choice task whose documents are asked for a letter."""

    def __init__(self, asked: Task) -> None:
        _refuse(asked.spec)
        self._asked = asked
        super().__init__(_spec(asked), asked.rendering, asked.splits)

    @cached_property
    def rows(self) -> Split:
        """Those of the task as it was: `process_docs` may draw, and draws once."""
        return self._asked.rows


def asks_for_letters(task: Task) -> bool:
    """Whether a task asks for letters in place of log-probabilities."""
    return isinstance(task, LetterChoiceTask)


def describe_letter_tasks(tasks: Mapping[str, Task]) -> list[str]:
    """What is to be known of a run that asks for letters."""
    asked = [name for name, task in tasks.items() if asks_for_letters(task)]
    if not asked:
        return []
    named = ", ".join(asked[:3]) + (", …" if len(asked) > 3 else "")
    return [
        f"{named}: the letter of a choice is asked for; `{LETTER_METRIC}` is not the `acc` of log-likelihoods"
    ]


def add_letter_metrics(
    groups: Mapping[str, GroupSpec], leaves: Callable[[str], Sequence[str]], tasks: Mapping[str, Task]
) -> dict[str, GroupSpec]:
    """The groups, with a line for `acc_letter` where they have one for a metric its tasks would have had."""
    changed = {}
    for name, group in groups.items():
        asked = [
            task._asked.spec for leaf in leaves(name) if isinstance(task := tasks.get(leaf), LetterChoiceTask)
        ]
        metrics = {metric.name for spec in asked for metric in spec.metrics} | {"acc", "acc_norm"}
        wanted = next((one for one in group.metrics if one.metric in metrics), None) if asked else None
        more = () if wanted is None else (_letter_metric(wanted),)
        changed[name] = replace(group, metrics=(*group.metrics, *more))
    return changed


def _letter_metric(wanted: GroupMetric) -> GroupMetric:
    aggregation = wanted.aggregation if isinstance(wanted.aggregation, str) else "mean"
    return GroupMetric(
        metric=LETTER_METRIC, aggregation=aggregation, weight_by_size=wanted.weight_by_size, filter_list=None
    )


def _refuse(spec: TaskSpec) -> None:
    why = ""
    if spec.config.get("class") is not None:
        why = "it is written as a class"
    elif spec.process_results is not None:
        why = "its own code judges log-probabilities"
    if why:
        raise UnsupportedRequest(
            f"`{spec.name}` cannot be asked for letters: {why}",
            where=spec.place("process_results" if spec.process_results is not None else "class"),
            hint="leave it out, or ask a model that gives log-probabilities",
        )


def _spec(asked: Task) -> TaskSpec:
    """The task file's content, rewritten into one that asks for a letter."""
    spec = asked.spec
    letters = _Letters(asked.question, asked.target, asked.choices, asked)
    text, target, choices, _ = asked.fewshot.compilers
    examples = _Letters(text, target, choices or (lambda fields: None), asked)
    step = FilterStep(function="letter", arguments={"count": letters.count}, where=spec.place("output_type"))
    fewshot: FewshotSpec = replace(
        spec.fewshot,
        doc_to_text=examples.question,
        doc_to_target=examples.first,
        doc_to_choice=None,
        gen_prefix=None,
        target_delimiter=" ",
    )
    metric = MetricSpec(metric=LETTER_METRIC, aggregation="mean", higher_is_better=True)
    until = [] if asked.rendering.chat else ["\n\n"]  # a base model would go on with questions of its own
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


class _Letters:
    """What a document becomes when its choices get letters."""

    def __init__(self, text: Make, target: Make, choices: Make, asked: Task) -> None:
        self._text, self._target, self._choices = text, target, choices
        self._asked = asked

    def question(self, fields: Fields, *_: Any) -> str:
        """The question, its choices in a list, and what is wanted."""
        choices = self._listed(fields)
        text = _WHICH if self._asked.shape[0] else str(self._text(fields))
        text = text.rstrip().removesuffix(_END).rstrip()
        if [choice.strip().strip("().:") for choice in choices] == list(ascii_uppercase[: len(choices)]):
            listed = ""  # the question lists them itself
        else:
            listed = "\n".join(
                f"{letter}. {choice.strip()}"
                for letter, choice in zip(ascii_uppercase, choices, strict=False)
            )
        return "\n\n".join(piece for piece in (text, listed, f"{_ASK}\n{_END}") if piece)

    def target(self, fields: Fields, *_: Any) -> str | list[str]:
        """The letter of the right choice; of several, all of them."""
        gold = self._text(fields) if self._asked.shape[0] else self._target(fields)
        count = self.count(fields)
        if isinstance(gold, list):
            return [ascii_uppercase[self._place(one, fields, count)] for one in gold]
        return ascii_uppercase[self._place(gold, fields, count)]

    def first(self, fields: Fields, *_: Any) -> str:
        """The letter an example shows."""
        found = self.target(fields)
        return found if isinstance(found, str) else found[0]

    def count(self, fields: Fields) -> int:
        """How many choices there are."""
        return len(self._choices(fields) or ())

    def _listed(self, fields: Fields) -> list[str]:
        choices = [str(choice) for choice in self._choices(fields) or ()]
        where = self._asked.spec.place("doc_to_choice")
        if not 0 < len(choices) <= len(ascii_uppercase):
            raise TaskError(f"{len(choices)} choices cannot have letters", where=where)
        if self._asked.shape[0]:  # the choices are beginnings, and the target is how each goes on
            end = f"{self._asked.spec.target_delimiter}{self._target(fields)}"
            choices = [f"{choice}{end}" for choice in choices]
        return choices

    def _place(self, gold: Any, fields: Fields, count: int) -> int:
        if isinstance(gold, str):
            choices = list(self._choices(fields) or ())
            gold = choices.index(gold) if gold in choices else -1
        if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < count:
            raise TaskError(
                f"the target {gold!r} is none of the {count} choices",
                where=self._asked.spec.place("doc_to_target"),
            )
        return gold
