"""Answer requests in batches. Batches are split when memory runs out; an error fails only its own request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.core.errors import MediaError
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.multimodal.batches import Batch, Batcher
from assay.models.hf.multimodal.engine import GeneratedText, MultimodalEngine
from assay.models.hf.multimodal.prompt_layout import PromptInputs, PromptLayout, UnsupportedMedia
from assay.models.tokens import Pair, Unanswerable, encode_pairs, fit_pair, split_rolling_windows

__all__ = ["GenerationLimits", "RequestProcessor"]

_MAX_RESERVED_TOKENS = 256
"""Maximum number of tokens that a long prompt reserves for its answer."""

_MIN_CHOICE_ROWS = 16
"""Minimum number of choices per batch, for any batch size: their prompts are already computed."""

_REQUEST_ERRORS = (
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that processors and models raise for media or prompts they do not support."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLimits:
    """Batch size and limits of answers."""

    batch_size: int
    max_new_tokens: int
    ignored_stops: frozenset[str] = frozenset()


@dataclass(slots=True)
class _PromptRow:
    """One prompt and the requests for it."""

    requests: list[Any]
    inputs: PromptInputs
    tokens: list[int] | None = None
    """The tokens of a prompt without media; None if it has media."""

    continuations: list[list[int]] | None = None
    truncated: int = 0
    """Tokens removed from the prompt so that it fits the model."""


class RequestProcessor:
    """Answers windows of requests with one loaded model."""

    def __init__(
        self, engine: MultimodalEngine, batcher: Batcher, layout: PromptLayout, limits: GenerationLimits
    ) -> None:
        self._engine = engine
        self._batcher = batcher
        self._layout = layout
        self._limits = limits
        self._budget = BatchBudget(limits.batch_size)
        self._choice_budget = BatchBudget(max(_MIN_CHOICE_ROWS, limits.batch_size))
        self.model_seconds = 0.0

    def process(self, window: Sequence[Request]) -> Iterator[Outcome]:
        """Yield one outcome per request."""
        by_settings: dict[str, list[Generate]] = {}
        choices: dict[str, list[Likelihood]] = {}
        for request in window:
            match request:
                case Generate():
                    by_settings.setdefault(request.settings.digest, []).append(request)
                case Likelihood():
                    choices.setdefault(request.prompt.digest, []).append(request)
                case RollingLikelihood():
                    yield from self._score_rolling(request)
        for requests in by_settings.values():
            yield from self._generate(requests)
        yield from self._score_choices(list(choices.values()))

    # --- generation --------------------------------------------------------------------------------

    def _generate(self, requests: Sequence[Generate]) -> Iterator[Outcome]:
        settings = requests[0].settings
        limit = self._limits.max_new_tokens if settings.max_tokens is None else settings.max_tokens
        stops = [stop for stop in settings.stop if stop and stop not in self._limits.ignored_stops]
        groups_by_prompt: dict[Any, list[Generate]] = {}
        for request in requests:  # greedy repeats of a prompt are generated once
            own = request.id if settings.temperature > 0 else ""
            groups_by_prompt.setdefault((request.prompt.digest, own), []).append(request)

        def prepare(some: list[Generate]) -> _PromptRow:
            inputs = self._layout.build_inputs(some[0].prompt, effort=settings.reasoning_effort)
            tokens, truncated = None, 0
            if not inputs.has_media:
                [tokens] = self._batcher.encoder([inputs.text])
                reserved = min(limit, _MAX_RESERVED_TOKENS) + self._engine.count_reasoning_tokens(settings)
                max_tokens = self._batcher.max_length - min(reserved, self._batcher.max_length // 2)
                whole = tokens or [self._batcher.encoder.prefix_token]
                tokens = whole[-max_tokens:]
                truncated = len(whole) - len(tokens)
            return _PromptRow(list(some), inputs, tokens, truncated=truncated)

        def run(rows: Sequence[_PromptRow]) -> Iterator[tuple[Any, Outcome]]:
            first_requests = [row.requests[0] for row in rows]
            started = time.monotonic()
            texts = self._engine.generate(
                self._build_batch(rows),
                first_requests,
                [row.inputs.text for row in rows],
                stops=stops,
                max_new_tokens=limit,
            )
            seconds = (time.monotonic() - started) / len(rows)
            for row, generated in zip(rows, texts, strict=True):
                for request in row.requests:
                    yield request, _build_response(request, generated, seconds, row.truncated)

        yield from self._process_in_batches(_sort_for_batching(groups_by_prompt.values()), prepare, run)

    # --- likelihoods -------------------------------------------------------------------------------

    def _score_choices(self, groups: Sequence[list[Likelihood]]) -> Iterator[Outcome]:
        def prepare(some: list[Likelihood]) -> _PromptRow:
            inputs = self._layout.build_inputs(some[0].prompt)
            pairs = encode_pairs(
                [(inputs.text, request.continuation) for request in some], self._batcher.encoder
            )
            row = _PromptRow([], inputs, None, [])
            for request, pair in zip(some, pairs, strict=True):
                if isinstance(pair, Unanswerable):
                    raise pair
                row.requests.append(request)
                row.continuations = [*(row.continuations or []), pair.continuation]
                if not inputs.has_media:
                    fitted = fit_pair(pair, self._batcher.max_length)
                    row.tokens, row.truncated = fitted.context, fitted.truncated
            inputs.text = inputs.text.rstrip()
            return row

        yield from self._process_in_batches(_sort_for_batching(groups), prepare, self._score_rows)

    def _score_rows(self, rows: Sequence[_PromptRow]) -> Iterator[tuple[Any, Outcome]]:
        batch = self._build_batch(rows)
        started = time.monotonic()
        found = self._score_batch(batch, [row.continuations or [] for row in rows])
        seconds = (time.monotonic() - started) / sum(len(row.requests) for row in rows)
        for row, values, length in zip(rows, found, batch.lengths, strict=True):
            for request, value, one in zip(row.requests, values, row.continuations or [], strict=True):
                usage = Usage(length, len(one), truncated_tokens=row.truncated)
                yield request, Response(request_id=request.id, value=value, usage=usage, seconds=seconds)

    def _score_batch(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]]
    ) -> list[list[LogProbability]]:
        """Score a batch with fewer choices at once when memory runs out. With one choice, the error is raised."""
        while True:
            try:
                return self._engine.score(batch, continuations, max_rows=self._choice_budget.size)
            except RuntimeError as error:
                if not is_out_of_memory(error) or not self._choice_budget.halve():
                    raise
                release_memory(self._batcher.device)

    def _score_rolling(self, request: RollingLikelihood) -> Iterator[Outcome]:
        """Score the whole text of a prompt, including special tokens, in windows that fit the model."""
        encoder = self._batcher.encoder
        [tokens] = encoder([request.prompt.text])
        windows = split_rolling_windows(
            tokens, prefix_token=encoder.prefix_token, max_length=self._batcher.max_length
        )
        total = 0.0

        def prepare(pair: Pair) -> _PromptRow:
            return _PromptRow([pair], PromptInputs(), pair.context, [pair.continuation])

        def run(rows: Sequence[_PromptRow]) -> Iterator[tuple[Any, Outcome]]:
            nonlocal total
            found = self._score_batch(self._build_batch(rows), [row.continuations or [] for row in rows])
            total += sum(value.total for values in found for value in values)
            return iter(())

        failures = list(self._process_in_batches(windows, prepare, run, get_request=lambda _: request))
        if failures:
            yield failures[0]
            return
        usage = Usage(len(tokens), 0)
        yield Response(request_id=request.id, value=LogProbability(total), usage=usage)

    # --- batches -----------------------------------------------------------------------------------

    def _build_batch(self, rows: Sequence[_PromptRow]) -> Batch:
        if rows[0].tokens is not None:
            return self._batcher.batch_tokens([row.tokens or [] for row in rows])
        return self._batcher.batch_media([row.inputs for row in rows])

    def _process_in_batches(
        self,
        items: Sequence[T],
        prepare: Callable[[T], _PromptRow],
        run: Callable[[Sequence[_PromptRow]], Iterator[tuple[Any, Outcome]]],
        get_request: Callable[[Any], Request] | None = None,
    ) -> Iterator[Outcome]:
        """Prepare, batch and run items. Media are decoded one batch at a time."""
        request_getter = get_request or (lambda request: request)
        start = 0
        while start < len(items):
            some = items[start : start + self._budget.size]
            start += len(some)
            rows_by_key: dict[Any, list[_PromptRow]] = {}
            for item in some:
                try:
                    row = prepare(item)
                except (MediaError, UnsupportedMedia, *_REQUEST_ERRORS) as error:
                    requests = item if isinstance(item, list) else [item]
                    yield from _build_failures([request_getter(one) for one in requests], error)
                else:
                    key = self._layout.batch_key(row.inputs), self._batcher.has_start_token(row.inputs)
                    rows_by_key.setdefault(key, []).append(row)
            for rows in rows_by_key.values():
                yield from self._run_with_retries(rows, run, request_getter)

    def _run_with_retries(
        self,
        rows: Sequence[_PromptRow],
        run: Callable[[Sequence[_PromptRow]], Iterator[tuple[Any, Outcome]]],
        request_getter: Callable[[Any], Request],
    ) -> Iterator[Outcome]:
        """Run a batch. When memory runs out, run it in halves; after any other error, run its rows one by one."""
        alone = rows[0].continuations is not None and self._engine.must_run_alone(
            media=rows[0].tokens is None
        )
        size = 1 if alone else len(rows)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            started = time.perf_counter()
            try:
                outcomes = list(run(part))
            except _REQUEST_ERRORS as error:
                if len(part) == 1:
                    yield from _build_failures([request_getter(one) for one in part[0].requests], error)
                    continue
                if is_out_of_memory(error):
                    release_memory(self._batcher.device)
                    self._budget.halve()
                    half = len(part) // 2
                    yield from self._run_with_retries(part[:half], run, request_getter)
                    yield from self._run_with_retries(part[half:], run, request_getter)
                else:
                    for row in part:
                        yield from self._run_with_retries([row], run, request_getter)
            else:
                self._budget.record_success()
                self.model_seconds += time.perf_counter() - started
                yield from (outcome for _, outcome in outcomes)


def _build_response(request: Generate, generated: GeneratedText, seconds: float, truncated: int) -> Response:
    usage = Usage(
        generated.prompt_tokens,
        generated.generated_tokens,
        reasoning_tokens=generated.reasoning_tokens,
        truncated_tokens=truncated,
    )
    return Response(
        request_id=request.id,
        value=generated.text,
        finish=generated.finish,
        usage=usage,
        seconds=seconds,
        reasoning=generated.reasoning,
    )


def _sort_for_batching(groups: Iterable[list[Any]]) -> list[list[Any]]:
    """Sort groups so that batches contain prompts with the same media and similar length, long ones first."""

    def key(group: list[Any]) -> tuple[tuple[str, ...], int]:
        prompt: Prompt = group[0].prompt
        return tuple(sorted({type(part).__name__ for part in prompt.media})), -len(prompt.text)

    return sorted(groups, key=key)


def _build_failures(requests: Iterable[Request], error: Exception) -> Iterator[Failure]:
    kind = "bad request"
    if isinstance(error, MediaError | UnsupportedMedia):
        kind = "bad media"
    elif is_out_of_memory(error):
        kind = "out of memory"
    message = str(error).strip() or type(error).__name__
    for request in requests:
        yield Failure(request_id=request.id, kind=kind, message=message)
