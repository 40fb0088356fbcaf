"""The examples of a task: which documents they are drawn from, and how each is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from assay.core.errors import BadTask
from assay.tasks.documents import TaskDocuments
from assay.tasks.fewshot import Sampler, Turn, question_turns, remembered
from assay.tasks.makers import choices_maker, field_maker, loan
from assay.tasks.rows import Rows
from assay.tasks.tables import in_order

__all__ = ["Shots"]

Fields = Mapping[str, Any]

_MOST_HELD = 20_000
"""The largest pool of a dataset that is read into memory; its rows are slow to take one by one."""


class Shots:
    """Few-shot examples of one task."""

    def __init__(self, task: TaskDocuments) -> None:
        self._task = task

    def begin(self) -> Callable[[Fields], list[Turn]]:
        """A function from a document to the turns of its examples; a fresh sampler for each pass."""
        if self._task.num_fewshot == 0 or self._task.spec.output_type == "loglikelihood_rolling":
            return lambda fields: []
        spec, own = self._task.spec, self._task.spec.fewshot
        if not isinstance(own.sampler, str):
            raise BadTask(
                "few-shot samplers must be named",
                where=spec.place("fewshot_config"),
                hint="`sampler: first_n`",
            )
        sampler = Sampler(
            own.sampler, self.pool, self._task.rendering.fewshot_seed, where=spec.place("fewshot_config")
        )
        write = remembered(self._write_shot)
        own_split = (own.split or spec.fewshot_split) == spec.test_split
        if spec.dialect == "lmms_eval":
            count = self._task.num_fewshot
            return lambda fields: write(sampler.pick_others(count, fields, one_more=own_split))
        if sampler.fixed and not own_split:
            turns = write(sampler.pick(self._task.num_fewshot))
            return lambda fields: turns
        return lambda fields: write(sampler.pick(self._task.num_fewshot, fields if own_split else None))

    @cached_property
    def pool(self) -> Sequence[Fields]:
        """The documents examples are drawn from."""
        spec, own = self._task.spec, self._task.spec.fewshot
        split = own.split or spec.fewshot_split
        if split is not None:
            return _held(self._task.split(split, own.process_docs or spec.process_docs, "fewshot_split"))
        if own.samples is not None and spec.dialect == "lm_eval":  # lmms-eval leaves them alone
            return list(own.samples() if callable(own.samples) else own.samples)
        for name in (spec.training_split, spec.validation_split, spec.test_split):
            if name is not None:
                return _held(self._task.split(name, spec.process_docs, "training_split"))
        return []

    @cached_property
    def makers(self) -> tuple[Any, Any, Any, Any]:
        """What makes an example's question, target, choices (or None) and the beginning of its answer."""
        own, place = self._task.spec.fewshot, self._task.spec.place("fewshot_config")
        text = (
            self._task.make_text
            if own.doc_to_text is None
            else self._task.text_with(own.doc_to_text, "fewshot_config")
        )
        target = (
            self._task.make_target
            if own.doc_to_target is None
            else self._task.target_with(own.doc_to_target, "fewshot_config")
        )
        choices = self._task.make_choices
        if own.doc_to_choice is not None:
            choices = choices_maker(own.doc_to_choice, self._task.columns, where=place)
        prefix = field_maker(
            self._task.spec.gen_prefix if own.gen_prefix is None else own.gen_prefix, where=place
        )
        return text, target, choices, prefix

    def _write_shot(self, at: int) -> list[Turn]:
        fields = loan(self.pool[at])
        text, target, make_choices, prefix = self.makers
        own, spec = self._task.spec.fewshot, self._task.spec
        choices = make_choices(fields) if make_choices else None
        question = text(fields)
        if self._task.shape[0] and choices is not None:
            question, choices = choices[question], None
        turns = question_turns(
            question,
            target(fields),
            choices=choices,
            prefix=prefix(fields),
            target_delimiter=spec.target_delimiter if own.target_delimiter is None else own.target_delimiter,
            after=spec.fewshot_delimiter if own.fewshot_delimiter is None else own.fewshot_delimiter,
            where=spec.place("fewshot_config" if own.doc_to_target is not None else "doc_to_target"),
        )
        if self._task.rendering.chat:
            return turns
        return [
            Turn("user", "".join([turn.content + turn.delimiter for turn in turns]))
        ]  # as plain text reads it


def _held(rows: Any) -> Sequence[Fields]:
    """Rows that can be taken in any order: a few are held, many are read when they are drawn."""
    return rows if isinstance(rows, Rows) or len(rows) > _MOST_HELD else list(in_order(rows))
