"""Requests to outcomes: arranged in batches, split when memory runs out, each mishap the failure of its own request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.core.errors import MediaError
from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.multimodal.batches import Batch, Batcher
from assay.models.hf.multimodal.engine import Engine, Written
from assay.models.hf.multimodal.prompt_layout import Laid, Layout, UnreadablePart
from assay.models.tokens import Pair, Unanswerable, encode_pairs, fit_pair, rolling_windows

__all__ = ["Answering", "Limits"]

_LEAST_ROOM = 256
"""Tokens a long text leaves for its answer, at most."""

_CHOICE_ROWS = 16
"""Choices read at once at least, whatever the batch size: their prompts are read already."""

_MISHAPS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What processors and models raise about a medium or a prompt they do not get along with."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much at once, and where answers end."""

    batch_size: int
    max_new_tokens: int
    unheeded_stops: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Row:
    """One prompt on its way through the model, and who asked for it."""

    requests: list[Any]
    laid: Laid
    tokens: list[int] | None = None
    """The tokens of a prompt without media."""

    continuations: list[list[int]] | None = None


class Answering:
    """Answers windows of requests with one loaded model."""

    def __init__(self, engine: Engine, batcher: Batcher, layout: Layout, limits: Limits) -> None:
        self._engine = engine
        self._batcher = batcher
        self._layout = layout
        self._limits = limits
        self._budget = Budget(limits.batch_size)
        self._choice_budget = Budget(max(_CHOICE_ROWS, limits.batch_size))
        self.model_seconds = 0.0

    def outcomes(self, window: Sequence[Request]) -> Iterator[Outcome]:
        """One outcome per request."""
        by_settings: dict[str, list[Generate]] = {}
        choices: dict[str, list[Likelihood]] = {}
        for request in window:
            match request:
                case Generate():
                    by_settings.setdefault(request.settings.digest, []).append(request)
                case Likelihood():
                    choices.setdefault(request.prompt.digest, []).append(request)
                case RollingLikelihood():
                    yield from self._rolling(request)
        for writes in by_settings.values():
            yield from self._writes(writes)
        yield from self._choices(list(choices.values()))

    # --- writing -----------------------------------------------------------------------------------

    def _writes(self, requests: Sequence[Generate]) -> Iterator[Outcome]:
        settings = requests[0].settings
        limit = self._limits.max_new_tokens if settings.max_tokens is None else settings.max_tokens
        stops = [stop for stop in settings.stop if stop and stop not in self._limits.unheeded_stops]
        leads: dict[Any, list[Generate]] = {}
        for request in requests:  # greedy repeats of a prompt are one piece of work
            own = request.id if settings.temperature > 0 else ""
            leads.setdefault((request.prompt.digest, own), []).append(request)

        def lay(some: list[Generate]) -> _Row:
            laid = self._layout.lay(some[0].prompt)
            tokens = None
            if not laid.has_media:
                [tokens] = self._batcher.encoder([laid.text])
                room = self._batcher.max_length - min(limit, _LEAST_ROOM, self._batcher.max_length // 2)
                tokens = (tokens or [self._batcher.encoder.prefix_token])[-room:]
            return _Row(list(some), laid, tokens)

        def work(rows: Sequence[_Row]) -> Iterator[tuple[Any, Outcome]]:
            firsts = [row.requests[0] for row in rows]
            started = time.monotonic()
            made = self._engine.write(self._batch(rows), firsts, stops=stops, max_new_tokens=limit)
            seconds = (time.monotonic() - started) / len(rows)
            for row, written in zip(rows, made, strict=True):
                for request in row.requests:
                    yield request, _told(request, written, seconds)

        yield from self._in_batches(_alike(leads.values()), lay, work)

    # --- likelihoods -------------------------------------------------------------------------------

    def _choices(self, groups: Sequence[list[Likelihood]]) -> Iterator[Outcome]:
        def lay(some: list[Likelihood]) -> _Row:
            laid = self._layout.lay(some[0].prompt)
            pairs = encode_pairs(
                [(laid.text, request.continuation) for request in some], self._batcher.encoder
            )
            row = _Row([], laid, None, [])
            for request, pair in zip(some, pairs, strict=True):
                if isinstance(pair, Unanswerable):
                    raise pair
                row.requests.append(request)
                row.continuations = [*(row.continuations or []), pair.continuation]
                if not laid.has_media:
                    row.tokens = fit_pair(pair, self._batcher.max_length).context
            laid.text = laid.text.rstrip()
            return row

        yield from self._in_batches(_alike(groups), lay, self._score)

    def _score(self, rows: Sequence[_Row]) -> Iterator[tuple[Any, Outcome]]:
        batch = self._batch(rows)
        started = time.monotonic()
        found = self._likelihoods(batch, [row.continuations or [] for row in rows])
        seconds = (time.monotonic() - started) / sum(len(row.requests) for row in rows)
        for row, values, length in zip(rows, found, batch.lengths, strict=True):
            for request, value, one in zip(row.requests, values, row.continuations or [], strict=True):
                usage = Usage(length, len(one))
                yield request, Response(request_id=request.id, value=value, usage=usage, seconds=seconds)

    def _likelihoods(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]]
    ) -> list[list[LogProbability]]:
        """Fewer choices at once when memory runs out, down to one; then fewer prompts, which is the caller's business."""
        while True:
            try:
                return self._engine.likelihoods(batch, continuations, most_rows=self._choice_budget.size)
            except RuntimeError as error:
                if not is_out_of_memory(error) or not self._choice_budget.halve():
                    raise
                free_memory(self._batcher.device)

    def _rolling(self, request: RollingLikelihood) -> Iterator[Outcome]:
        """The whole text of a prompt, special tokens of the tokenizer included, in windows the model can hold."""
        encoder = self._batcher.encoder
        [tokens] = encoder([request.prompt.text])
        windows = rolling_windows(
            tokens, prefix_token=encoder.prefix_token, max_length=self._batcher.max_length
        )
        total = 0.0

        def lay(pair: Pair) -> _Row:
            return _Row([pair], Laid(), pair.context, [pair.continuation])

        def work(rows: Sequence[_Row]) -> Iterator[tuple[Any, Outcome]]:
            nonlocal total
            found = self._likelihoods(self._batch(rows), [row.continuations or [] for row in rows])
            total += sum(value.total for values in found for value in values)
            return iter(())

        failures = list(self._in_batches(windows, lay, work, named=lambda _: request))
        if failures:
            yield failures[0]
            return
        usage = Usage(len(tokens), 0)
        yield Response(request_id=request.id, value=LogProbability(total), usage=usage)

    # --- batches -----------------------------------------------------------------------------------

    def _batch(self, rows: Sequence[_Row]) -> Batch:
        if rows[0].tokens is not None:
            return self._batcher.of_tokens([row.tokens or [] for row in rows])
        return self._batcher.of_media([row.laid for row in rows])

    def _in_batches(
        self,
        items: Sequence[T],
        lay: Callable[[T], _Row],
        work: Callable[[Sequence[_Row]], Iterator[tuple[Any, Outcome]]],
        named: Callable[[Any], Request] | None = None,
    ) -> Iterator[Outcome]:
        """Lay out, batch and work through items; media are decoded a batch at a time."""
        naming = named or (lambda request: request)
        at = 0
        while at < len(items):
            some = items[at : at + self._budget.size]
            at += len(some)
            alike: dict[Any, list[_Row]] = {}
            for item in some:
                try:
                    row = lay(item)
                except (MediaError, UnreadablePart, *_MISHAPS) as error:
                    asked = item if isinstance(item, list) else [item]
                    yield from _failures([naming(one) for one in asked], error)
                else:
                    key = self._layout.likeness(row.laid), self._batcher.is_begun(row.laid)
                    alike.setdefault(key, []).append(row)
            for rows in alike.values():
                yield from self._with_care(rows, work, naming)

    def _with_care(
        self,
        rows: Sequence[_Row],
        work: Callable[[Sequence[_Row]], Iterator[tuple[Any, Outcome]]],
        naming: Callable[[Any], Request],
    ) -> Iterator[Outcome]:
        """Work, in halves when memory runs out, one by one when something else goes wrong."""
        alone = rows[0].continuations is not None and self._engine.is_trying(media=rows[0].tokens is None)
        size = 1 if alone else len(rows)
        for at in range(0, len(rows), size):
            part = rows[at : at + size]
            started = time.perf_counter()
            try:
                made = list(work(part))
            except _MISHAPS as error:
                if len(part) == 1:
                    yield from _failures([naming(one) for one in part[0].requests], error)
                    continue
                if is_out_of_memory(error):
                    free_memory(self._batcher.device)
                    self._budget.halve()
                    half = len(part) // 2
                    yield from self._with_care(part[:half], work, naming)
                    yield from self._with_care(part[half:], work, naming)
                else:
                    for row in part:
                        yield from self._with_care([row], work, naming)
            else:
                self._budget.succeeded()
                self.model_seconds += time.perf_counter() - started
                yield from (outcome for _, outcome in made)


def _told(request: Generate, written: Written, seconds: float) -> Response:
    usage = Usage(written.read, written.written)
    return Response(
        request_id=request.id,
        value=written.text,
        finish=written.finish,
        usage=usage,
        seconds=seconds,
        reasoning=written.thought,
    )


def _alike(groups: Iterable[list[Any]]) -> list[list[Any]]:
    """Groups in an order that fills batches with prompts of one kind and about one length, long ones first."""

    def key(group: list[Any]) -> tuple[tuple[str, ...], int]:
        prompt: Prompt = group[0].prompt
        return tuple(sorted({type(part).__name__ for part in prompt.media})), -len(prompt.text)

    return sorted(groups, key=key)


def _failures(requests: Iterable[Request], error: Exception) -> Iterator[Failure]:
    kind = "bad request"
    if isinstance(error, MediaError | UnreadablePart):
        kind = "bad media"
    elif is_out_of_memory(error):
        kind = "out of memory"
    said = str(error).strip() or type(error).__name__
    for request in requests:
        yield Failure(request_id=request.id, kind=kind, message=said)
