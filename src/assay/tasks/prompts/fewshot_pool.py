"""The examples of a task: which documents they are drawn from, and how each is written."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from assay.core.errors import TaskError
from assay.tasks.data.rows import Rows, iterate_rows
from assay.tasks.documents import TaskDocuments
from assay.tasks.prompts.field_compilers import compile_choices, compile_field, copy_fields
from assay.tasks.prompts.turns import Turn, build_question_turns

__all__ = ["FewshotExamples", "FewshotSampler"]

Fields = Mapping[str, Any]

_MAX_LOADED_ROWS = 20_000
"""The largest pool of a dataset that is read into memory; its rows are slow to take one by one."""


class FewshotExamples:
    """Few-shot examples of one task."""

    def __init__(self, task: TaskDocuments) -> None:
        self._task = task

    def start_sampling(self) -> Callable[[Fields], list[Turn]]:
        """A function from a document to the turns of its examples; a fresh sampler for each pass."""
        if self._task.num_fewshot == 0 or self._task.spec.output_type.scores_whole_text:
            return lambda fields: []
        spec, own = self._task.spec, self._task.spec.fewshot
        if not isinstance(own.sampler, str):
            raise TaskError(
                "few-shot samplers must be named",
                where=spec.place("fewshot_config"),
                hint="`sampler: first_n`",
            )
        sampler = FewshotSampler(
            own.sampler, self.pool, self._task.rendering.fewshot_seed, where=spec.place("fewshot_config")
        )
        write = cache_examples(self._write_shot)
        own_split = (own.split or spec.fewshot_split) == spec.test_split
        if spec.dialect.may_draw_fewer_examples:
            count = self._task.num_fewshot
            return lambda fields: write(sampler.pick_like_lmms_eval(count, fields, one_more=own_split))
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
            return _held(self._task.load_split(split, own.process_docs or spec.process_docs, "fewshot_split"))
        if own.samples is not None and spec.dialect.reads_fewshot_samples:
            return list(own.samples() if callable(own.samples) else own.samples)
        for name in (spec.training_split, spec.validation_split, spec.test_split):
            if name is not None:
                return _held(self._task.load_split(name, spec.process_docs, "training_split"))
        return []

    @cached_property
    def compilers(self) -> tuple[Any, Any, Any, Any]:
        """What makes an example's question, target, choices (or None) and the beginning of its answer."""
        own, place = self._task.spec.fewshot, self._task.spec.place("fewshot_config")
        text = (
            self._task.text_function
            if own.doc_to_text is None
            else self._task.compile_text_field(own.doc_to_text, "fewshot_config")
        )
        target = (
            self._task.target_function
            if own.doc_to_target is None
            else self._task.compile_target_field(own.doc_to_target, "fewshot_config")
        )
        choices = self._task.choices_function
        if own.doc_to_choice is not None:
            choices = compile_choices(own.doc_to_choice, self._task.columns, where=place)
        prefix = compile_field(
            self._task.spec.gen_prefix if own.gen_prefix is None else own.gen_prefix, where=place
        )
        return text, target, choices, prefix

    def _write_shot(self, at: int) -> list[Turn]:
        fields = copy_fields(self.pool[at])
        text, target, choices_function, prefix = self.compilers
        own, spec = self._task.spec.fewshot, self._task.spec
        choices = choices_function(fields) if choices_function else None
        question = text(fields)
        if self._task.shape[0] and choices is not None:
            question, choices = choices[question], None
        turns = build_question_turns(
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
    return rows if isinstance(rows, Rows) or len(rows) > _MAX_LOADED_ROWS else list(iterate_rows(rows))


class FewshotSampler:
    """Chooses examples. One generator per pass over a task, consumed in document order.

    `pick(n, document)` gives positions in the pool; `document` is the one being asked when the pool is its own
    split, so that it never becomes its own example.
    """

    def __init__(self, kind: str, pool: Sequence[Fields], seed: int | None, *, where: str = "") -> None:
        if kind not in ("default", "first_n"):
            raise TaskError(
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
            raise TaskError(
                f"{count} few-shot examples are wanted, but the pool has {others}",
                where=self._where,
                hint="lower num_fewshot, or name a larger fewshot_split",
            )
        return picked

    def pick_like_lmms_eval(self, count: int, document: Fields, *, one_more: bool) -> list[int]:
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


_MAX_CACHED_EXAMPLES = 50_000
"""Examples kept in memory, some 20 MB."""


def cache_examples(make: Callable[[int], list[Turn]]) -> Callable[[Iterable[int]], list[Turn]]:
    """Each example of the pool is written once, however often it is drawn; in a huge pool the first ones drawn are."""
    written: dict[int, list[Turn]] = {}

    def turns(positions: Iterable[int]) -> list[Turn]:
        collected: list[Turn] = []
        for at in positions:
            example = written.get(at)
            if example is None:
                example = make(at)
                if len(written) < _MAX_CACHED_EXAMPLES:
                    written[at] = example
            collected += example
        return collected

    return turns
