"""Causal and encoder-decoder models of text: windows of requests to tokens, tokens to answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from assay.core.messages import Media
from assay.core.ports import Ability
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import Vocabulary
from assay.models.hf.sampling import choice_of
from assay.models.hf.text.engine import Engine
from assay.models.hf.text.jobs import Job, handed_on
from assay.models.tokens import Pair, Unanswerable, encode_pairs, fit_pair, fit_prompt, rolling_windows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TextBackend"]


@dataclass(slots=True)
class _Window:
    """A window in tokens."""

    pairs: list[Pair] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """Which request a pair belongs to; a long text has several."""

    arranged: Any = None
    """The passes in which the pairs are computed."""

    arranged_prompts: Any = None
    """The passes in which the prompts of the jobs are read."""

    scored: list[Likelihood | RollingLikelihood] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    """Answers that need no model: the probability of an empty text."""


class TextBackend:
    """Text in, text or probabilities out."""

    needs: frozenset[Ability] = frozenset()
    window = 512

    def __init__(self, arguments: HfArguments, checkpoint: Checkpoint) -> None:
        self._arguments = arguments
        self._checkpoint = checkpoint
        kind = checkpoint.kind if arguments.backend == "default" else arguments.backend
        self._apart = kind == "seq2seq"
        self._vocabulary = Vocabulary(arguments, checkpoint, apart=self._apart)
        self._engine: Engine | None = None
        self._past_seconds = 0.0
        self.gives_tokens = False

    @cached_property
    def abilities(self) -> frozenset[Ability]:
        """A model that is to think first gives no likelihoods; one without a chat template does not chat."""
        found: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._arguments.enable_thinking:
            found -= {"likelihood"}
        if self._arguments.chat_template or self._checkpoint.has_template:
            found |= {"chat"}
        return frozenset(found)

    @property
    def model_seconds(self) -> float:
        return self._past_seconds + (0.0 if self._engine is None else self._engine.model_seconds)

    def identity(self) -> dict[str, str]:
        """Nothing of its own."""
        return {}

    def prepare(self, part: Media) -> None:
        """It has no use for media; a request with one is a failure."""

    def load(self) -> None:
        if self._engine is None:
            self._engine = Engine(
                self._arguments, self._checkpoint, self._vocabulary, has_encoder=self._apart
            )
            self._engine.gives_tokens = self.gives_tokens

    def unload(self) -> None:
        self._past_seconds = self.model_seconds
        self._engine = None

    def halt(self) -> None:
        """Give up at the next pass."""
        if self._engine is not None:
            self._engine.halt()

    def preview(self, request: Request) -> str:
        """What the model will read, its chat template applied."""
        return self._vocabulary.read(request.prompt)

    def encode(self, window: Sequence[Request]) -> _Window:
        """Texts to tokens: one call of the tokenizer for each kind of request."""
        found = _Window()
        texts: list[tuple[Request, str]] = []
        for request in window:
            if isinstance(request, Likelihood) and "likelihood" not in self.abilities:
                found.failures.append(_failure(request, "a model that thinks first gives no likelihoods"))
                continue
            try:
                texts.append((request, self._vocabulary.read(request.prompt)))
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))
        self._encode_likelihoods([(one, text) for one, text in texts if isinstance(one, Likelihood)], found)
        self._encode_rolling(
            [(one, text) for one, text in texts if isinstance(one, RollingLikelihood)], found
        )
        self._encode_prompts([(one, text) for one, text in texts if isinstance(one, Generate)], found)
        found.arranged = self._loaded.arrange(found.pairs)
        found.arranged_prompts = self._loaded.arrange_prompts(found.jobs)
        return found

    def _encode_likelihoods(self, asked: Sequence[tuple[Likelihood, str]], found: _Window) -> None:
        texts = [(text, request.continuation) for request, text in asked]
        pairs = encode_pairs(texts, self._vocabulary.scoring, apart=self._apart)
        for (request, _), pair in zip(asked, pairs, strict=True):
            try:
                if isinstance(pair, Unanswerable):
                    raise pair
                self._add(request, [self._fitted(pair)], found)
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))

    def _encode_rolling(self, asked: Sequence[tuple[RollingLikelihood, str]], found: _Window) -> None:
        encoder, max_length = self._vocabulary.scoring, self._loaded.max_length
        for (request, _), tokens in zip(asked, encoder([text for _, text in asked]), strict=True):
            windows = rolling_windows(tokens, prefix_token=encoder.prefix_token, max_length=max_length)
            if windows:
                self._add(request, windows, found)
            else:
                nothing = Tokens((), ()) if self.gives_tokens else None
                found.responses.append(
                    Response(request_id=request.id, value=LogProbability(0.0, True), tokens=nothing)
                )

    def _encode_prompts(self, asked: Sequence[tuple[Generate, str]], found: _Window) -> None:
        """One job per prompt and settings: greedy repeats are written once, sampled ones share what they read."""
        engine = self._loaded
        jobs: dict[tuple[str, str], Job] = {}
        prompts = self._vocabulary.prompting([text for _, text in asked])
        for (request, text), tokens in zip(asked, prompts, strict=True):
            job = jobs.get((text, request.settings.digest))
            if job is not None:
                job.requests.append(request)
                continue
            limit = request.settings.max_tokens
            limit = self._arguments.max_gen_toks if limit is None else limit
            try:
                room = engine.max_length + limit if self._apart else engine.max_length
                fitted = fit_prompt(tokens or [self._vocabulary.prefix_token], room, limit)
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))
                continue
            job = Job(
                tokens=fitted,
                requests=[request],
                choice=choice_of(request, engine.defaults),
                limit=limit,
                stops=tuple(dict.fromkeys((*request.settings.stop, self._vocabulary.end_text))),
                others=handed_on(request, engine.defaults),
            )
            jobs[text, request.settings.digest] = job
            found.jobs.append(job)

    def _fitted(self, pair: Pair) -> Pair:
        max_length = self._loaded.max_length
        if self._apart:
            return Pair(pair.context[-max_length:], pair.continuation[-max_length:])
        return fit_pair(pair, max_length)

    def _add(self, request: Likelihood | RollingLikelihood, pairs: Sequence[Pair], found: _Window) -> None:
        found.owners.extend([len(found.scored)] * len(pairs))
        found.pairs.extend(pairs)
        found.scored.append(request)

    @property
    def _loaded(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("encode() was called before load()")
        return self._engine

    def answer(self, encoded: _Window) -> Iterator[Outcome]:
        """Failures first, then likelihoods, then what is to be written."""
        yield from encoded.failures
        yield from encoded.responses
        yield from self._scored(encoded)
        yield from self._loaded.write(encoded.jobs, encoded.arranged_prompts)

    def _scored(self, encoded: _Window) -> Iterator[Response]:
        """A long text is known when the last of its windows is."""
        totals = [0.0] * len(encoded.scored)
        greedy = [True] * len(encoded.scored)
        missing = [0] * len(encoded.scored)
        for owner in encoded.owners:
            missing[owner] += 1
        chances: list[list[float]] = [[] for _ in encoded.pairs] if self.gives_tokens else []
        tell = partial(_hear, chances) if chances else None
        started = time.perf_counter()
        for index, total, is_greedy in self._loaded.score(encoded.pairs, encoded.arranged, tell):
            owner = encoded.owners[index]
            totals[owner] += total
            greedy[owner] &= is_greedy
            missing[owner] -= 1
            if not missing[owner]:
                pair = encoded.pairs[index]
                yield Response(
                    request_id=encoded.scored[owner].id,
                    value=LogProbability(totals[owner], greedy[owner]),
                    usage=Usage(len(pair.context), len(pair.continuation)),
                    seconds=time.perf_counter() - started,
                    tokens=self._told(encoded, owner, chances) if chances else None,
                )

    def _told(self, encoded: _Window, owner: int, chances: Sequence[Sequence[float]]) -> Tokens:
        """The tokens of a request, of all its windows."""
        told = [
            self._loaded.tokens_of(pair, chances[at])
            for at, (pair, of) in enumerate(zip(encoded.pairs, encoded.owners, strict=True))
            if of == owner
        ]
        pieces, logprobs = zip(*((one.pieces, one.logprobs) for one in told), strict=True)
        return Tokens(tuple(chain.from_iterable(pieces)), tuple(chain.from_iterable(logprobs)))


def _hear(chances: list[list[float]], which: NDArray[np.int64], numbers: NDArray[np.float64]) -> None:
    for index, number in zip(which.tolist(), numbers.tolist(), strict=True):
        chances[index].append(number)


def _failure(request: Request, message: str) -> Failure:
    return Failure(request_id=request.id, kind="bad request", message=message)
