"""Few-shot examples: the pool of documents, sampling from it, and rendering each example."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from assay.core.errors import TaskError
from assay.tasks.data.rows import Rows, iterate_rows, read_rows
from assay.tasks.documents import TaskDocuments
from assay.tasks.prompts.field_compilers import compile_choices, compile_field, copy_fields
from assay.tasks.prompts.turns import Turn, build_question_turns

__all__ = ["ExampleSource", "FewshotExamples", "FewshotSampler"]

Fields = Mapping[str, Any]

_MAX_LOADED_ROWS = 20_000
"""The largest `datasets` split that is read into memory. Its rows are slow to read one by one."""

_MAX_FIRST_ROWS = 64
"""The rows that `first_n` keeps in memory to compare them with each document."""


@dataclass(frozen=True, slots=True)
class ExampleSource:
    """The examples of documents, in document order: a function from the fields of a document to turns."""

    draw: Callable[[Fields], list[Turn]]
    prefetch: Callable[[int], None] | None = None
    """Reads the examples of this many following documents together, if that is faster. The examples stay the same."""

    def __call__(self, fields: Fields) -> list[Turn]:
        return self.draw(fields)


class FewshotExamples:
    """The few-shot examples of one task."""

    def __init__(self, task: TaskDocuments) -> None:
        self._task = task

    def start_sampling(self) -> ExampleSource:
        """Return a function from a document to the turns of its examples. Each pass has a new sampler."""
        if self._task.num_fewshot == 0 or self._task.spec.output_type.scores_whole_text:
            return ExampleSource(lambda fields: [])
        spec, own = self._task.spec, self._task.spec.fewshot
        if not isinstance(own.sampler, str):
            raise TaskError(
                "the few-shot sampler must be a name",
                where=spec.place("fewshot_config"),
                hint="`sampler: first_n`",
            )
        sampler = FewshotSampler(
            own.sampler, self.pool, self._task.rendering.fewshot_seed, where=spec.place("fewshot_config")
        )
        rendered: dict[int, list[Turn]] = {}
        render_examples = cache_examples(lambda index: self._render_example(sampler.get_row(index)), rendered)
        if order := self._task.rendering.fewshot_order:
            render_examples = reorder_examples(render_examples, order)
        own_split = (own.split or spec.fewshot_split) == spec.test_split
        count = self._task.num_fewshot
        is_compared = own_split or spec.dialect.may_draw_fewer_examples

        def prefetch(documents: int) -> None:
            sampler.prefetch(count + own_split, documents, () if is_compared else rendered)

        if spec.dialect.may_draw_fewer_examples:
            nothing = [Turn("user", "", spec.fewshot_delimiter)]
            return ExampleSource(
                lambda fields: (
                    render_examples(
                        sampler.pick_like_lmms_eval(count, self._task.text_fields(fields), one_more=own_split)
                    )
                    or nothing
                ),
                prefetch,
            )
        if sampler.fixed and not own_split:
            turns = render_examples(sampler.pick(count))
            return ExampleSource(lambda fields: turns)
        return ExampleSource(
            lambda fields: render_examples(sampler.pick(count, fields if own_split else None)), prefetch
        )

    @cached_property
    def pool(self) -> Sequence[Fields]:
        """The documents from which examples are drawn."""
        spec, own = self._task.spec, self._task.spec.fewshot
        split = own.split or spec.fewshot_split
        if split is not None:
            return _load_small_pool(
                self._task.load_split(split, own.process_docs or spec.process_docs, "fewshot_split")
            )
        if own.samples is not None:
            return list(own.samples() if callable(own.samples) else own.samples)
        for name in (spec.training_split, spec.validation_split, spec.test_split):
            if name is not None:
                return _load_small_pool(self._task.load_split(name, spec.process_docs, "training_split"))
        return []

    @cached_property
    def compilers(self) -> tuple[Any, Any, Any, Any]:
        """The functions for an example's question, target, choices (or None) and answer prefix."""
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

    def _render_example(self, row: Fields) -> list[Turn]:
        fields = copy_fields(row)
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
        ]  # one turn is enough for plain text


def _load_small_pool(rows: Any) -> Sequence[Fields]:
    """Load a small split into memory. Rows of a large one are read when drawn."""
    return rows if isinstance(rows, Rows) or len(rows) > _MAX_LOADED_ROWS else list(iterate_rows(rows))


class FewshotSampler:
    """Draws examples with one random generator per pass, in document order.

    `pick(n, document)` returns positions in the pool. `document` is set if the pool is the evaluated split, so that a
    document is never its own example.
    """

    def __init__(self, kind: str, pool: Sequence[Fields], seed: int | None, *, where: str = "") -> None:
        if kind not in ("default", "first_n"):
            raise TaskError(f"unknown few-shot sampler: `{kind}`", where=where, hint="`default` or `first_n`")
        self.fixed = kind == "first_n"
        self.pool = pool
        self._where = where
        self._random = random.Random(seed)
        self._ahead: deque[list[int]] = deque()
        """Positions drawn for the next documents."""

        self._state_before: Any = None
        self._taken = 0
        """The state of the generator before it drew ahead, and how many documents were served since."""

        self._rows: Mapping[int, Fields] = {}
        """Rows of the pool that are read already."""

        self._first_rows: Sequence[Fields] = ()

    def prefetch(self, wanted: int, documents: int, known: Container[int]) -> None:
        """Draw the examples of the next documents, and read their rows together unless they are known."""
        if self.fixed or wanted > len(self.pool):
            return
        if not self._ahead:
            self._state_before, self._taken = self._random.getstate(), 0
        everything = range(len(self.pool))
        for _ in range(documents - len(self._ahead)):
            self._ahead.append(self._random.sample(everything, wanted))
        self._rows = {}
        with suppress(Exception):  # reported by the document that needs the row
            self._rows = read_rows(
                self.pool, {index for drawn in self._ahead for index in drawn if index not in known}
            )

    def get_row(self, index: int) -> Fields:
        """Return a row of the pool. The caller must not change it."""
        row = self._rows.get(index)
        return self.pool[index] if row is None else row

    def _draw(self, wanted: int) -> list[int]:
        if self._ahead:
            self._taken += 1
            return self._ahead.popleft()
        return self._random.sample(range(len(self.pool)), wanted)

    def _forget_ahead(self, wanted: int) -> None:
        """Return the generator to the state in which it is without a prefetch."""
        if self._ahead:
            self._ahead.clear()
            self._random.setstate(self._state_before)
            for _ in range(self._taken):
                self._random.sample(range(len(self.pool)), wanted)

    def pick(self, count: int, document: Fields | None = None) -> list[int]:
        """Return the positions of `count` examples."""
        picked = self._pick_first(count, document) if self.fixed else self._pick_random(count, document)
        if len(picked) < count:
            raise self._pool_error(count, sum(row != document for row in iterate_rows(self.pool)))
        return picked

    def _pool_error(self, count: int, available: int) -> TaskError:
        return TaskError(
            f"the task needs {count} few-shot examples, but the pool has {available}",
            where=self._where,
            hint="reduce num_fewshot or set a larger fewshot_split",
        )

    def pick_like_lmms_eval(self, count: int, document: Fields, *, one_more: bool) -> list[int]:
        """Draw as lmms_eval does: `count` examples, or one more if the pool is the evaluated split, then remove the
        document itself. The result may have fewer than `count` examples. A document without its media columns differs
        from every row that has them."""
        wanted = count + one_more
        if wanted > len(self.pool):
            raise self._pool_error(wanted, len(self.pool))
        if self.fixed:
            first = enumerate(islice(self._iterate_pool(), wanted))
            return [index for index, row in first if row != document][:count]
        return [index for index in self._draw(wanted) if self.get_row(index) != document][:count]

    def _pick_first(self, count: int, document: Fields | None) -> list[int]:
        if document is None:
            return list(range(min(count, len(self.pool))))
        others = (index for index, row in enumerate(self._iterate_pool()) if row != document)
        return list(islice(others, count))

    def _iterate_pool(self) -> Iterator[Fields]:
        """Iterate over the pool. Its first rows are read once."""
        if not self._first_rows:
            self._first_rows = list(iterate_rows(self.pool, 0, _MAX_FIRST_ROWS))
        yield from self._first_rows
        if len(self._first_rows) < len(self.pool):
            yield from iterate_rows(self.pool, len(self._first_rows))

    def _pick_random(self, count: int, document: Fields | None) -> list[int]:
        everything = range(len(self.pool))
        wanted = count if document is None else count + 1
        if wanted > len(everything):
            return list(everything)[:count] if document is None and count == len(everything) else []
        drawn = self._draw(wanted)
        if not document:
            return drawn
        kept = [index for index in drawn if self.get_row(index) != document][:count]
        if len(kept) < count:
            self._forget_ahead(wanted)
            others = [index for index, row in enumerate(iterate_rows(self.pool)) if row != document]
            kept = self._random.sample(others, count) if count <= len(others) else others
        return kept


_MAX_CACHED_EXAMPLES = 50_000
"""Limit of cached examples, about 20 MB."""


def cache_examples(
    render: Callable[[int], list[Turn]], cache: dict[int, list[Turn]]
) -> Callable[[Iterable[int]], list[Turn]]:
    """Return a function that renders each example once. In a huge pool, only the first drawn examples are cached."""

    def turns(positions: Iterable[int]) -> list[Turn]:
        collected: list[Turn] = []
        for index in positions:
            example = cache.get(index)
            if example is None:
                example = render(index)
                if len(cache) < _MAX_CACHED_EXAMPLES:
                    cache[index] = example
            collected += example
        return collected

    return turns


def reorder_examples(
    render: Callable[[Iterable[int]], list[Turn]], order: str
) -> Callable[[Iterable[int]], list[Turn]]:
    """Return a function that renders the examples in another order: `reverse`, or `shuffle`, which depends on their positions."""

    def turns(positions: Iterable[int]) -> list[Turn]:
        listed = list(positions)[::-1]
        if order == "shuffle":
            random.Random(str(listed)).shuffle(listed)
        return render(listed)

    return turns
