"""llama.cpp behind the `Model` port: one GGUF file, in this process.

Chat messages go through the template in the file; plain prompts go as they are. A prompt that leaves no room for the
answer loses tokens at its left, as with the other adapters; a continuation longer than the model holds is that request's
failure. Nothing is loaded before `open()`; abilities and identity come from the file's header and its hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.file_digests import file_sha256
from assay.models.llamacpp.arguments import Arguments
from assay.models.llamacpp.gguf import GgufHeader, read_header
from assay.models.packages import wanted
from assay.models.tokens import (
    TextEncoder,
    Unanswerable,
    cut_at_stops,
    encode_pair,
    fit_pair,
    fit_prompt,
    rolling_windows,
    split_thinking,
)

if TYPE_CHECKING:
    from assay.models.llamacpp.engine import Engine, Step
    from assay.models.tokens.chat_template import ChatTemplate

__all__ = ["LlamaCppModel"]

_PACKAGE = "xllamacpp"


class LlamaCppModel:
    """A GGUF file: generation, chat, likelihoods.

    >>> LlamaCppModel(pretrained="models/tiny-Q8_0.gguf").name
    'tiny-Q8_0'
    """

    extra = "llamacpp"

    def __init__(
        self,
        *,
        pretrained: str | Path = "",
        model: str | Path = "",
        batch_size: int | str = 1,
        chat_template: str | None = None,
        **given: Any,
    ) -> None:
        """`pretrained` (or `model`): the file. `batch_size`: how many requests are computed together. The rest is
        described in `Arguments`."""
        path = str(pretrained or model)
        if not path:
            raise InvalidOption(
                f"the model `{self.extra}` needs a GGUF file",
                where="--model_args",
                hint="--model_args pretrained=path/to/model.gguf",
            )
        self._path = Path(path).expanduser()
        if chat_template:
            given["chat_template"] = chat_template
        self._arguments = Arguments.of(given, batch_size=batch_size, model=self.extra)
        self._engine: Engine | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._gives_tokens = False

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return self._path.stem

    @property
    def traits(self) -> Traits:
        """Chat where the file has a template; windows long enough for prompts to share what they begin with."""
        abilities: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._template_source:
            abilities.add("chat")
        system = not self._template_source or self._template.takes_system
        return Traits(abilities=frozenset(abilities), system=system, window=64, in_flight=1, tokens=True)

    def give_tokens(self) -> None:
        """Every response brings its tokens from now on."""
        self._gives_tokens = True

    async def identify(self) -> Mapping[str, str]:
        """Hashes of file and template, the version of llama.cpp, and every argument that changes answers."""
        own = wanted(_PACKAGE, self.extra, f"the model `{self.extra}`")
        _ = self._header
        return {
            "name": self.name,
            _PACKAGE: own,
            "weights_sha256": await asyncio.to_thread(_weights_sha256, self._path),
            "template_sha256": hashlib.sha256(self._template_source.encode()).hexdigest(),
            "n_ctx": str(self._n_ctx),
            **self._arguments.identity(),
        }

    def preview(self, request: Request) -> str:
        """What the model will read, its chat template applied."""
        return self._text(request)

    async def open(self) -> None:
        """Load the file: seconds for small models."""
        wanted(_PACKAGE, self.extra, f"the model `{self.extra}`")
        if self._engine is None:
            self._engine = await asyncio.to_thread(self._load)
            self._threads = ThreadPoolExecutor(self._arguments.slots, thread_name_prefix="assay-llamacpp")

    async def close(self) -> None:
        """Stop what is being written, and free the weights."""
        engine, threads = self._engine, self._threads
        self._engine = self._threads = None
        if engine is not None:
            engine.stop()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Prompts that begin alike one after the other: a slot reads what they share once."""
        engine, threads = self._engine, self._threads
        if engine is None or threads is None:
            raise RuntimeError("answer() was called before open()")
        loop = asyncio.get_running_loop()
        waiting = {
            loop.run_in_executor(threads, self._answer_some, engine, slot, share)
            for slot, share in enumerate(_shares(window, self._arguments.slots))
        }
        # each call answers one request and hands on the rest, so that answers come out one by one
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    outcome, slot, rest = future.result()
                    if outcome is None:
                        continue
                    waiting.add(loop.run_in_executor(threads, self._answer_some, engine, slot, rest))
                    yield outcome
        finally:
            for future in waiting:
                future.cancel()

    def _answer_some(
        self, engine: Engine, slot: int, rest: Iterator[Request]
    ) -> tuple[Outcome | None, int, Iterator[Request]]:
        request = next(rest, None)
        return None if request is None else self._answer_one(engine, slot, request), slot, rest

    def _answer_one(self, engine: Engine, slot: int, request: Request) -> Outcome:
        started = time.monotonic()
        try:
            match request:
                case Generate():
                    response = self._generate(engine, slot, request)
                case Likelihood():
                    response = self._likelihood(engine, slot, request)
                case RollingLikelihood():
                    response = self._rolling(engine, slot, request)
        except Unanswerable as error:
            kind = "bad media" if request.prompt.has_media else "bad request"
            return Failure(request_id=request.id, kind=kind, message=str(error))
        return _timed(response, time.monotonic() - started)

    def _generate(self, engine: Engine, slot: int, request: Generate) -> Response:
        arguments, settings = self._arguments, request.settings
        limit = arguments.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        (tokens,) = self._encoder([self._text(request)])
        tokens = fit_prompt(tokens or [self._prefix[0]], self._n_ctx, limit)
        if limit < 1:
            usage = Usage(len(tokens), 0)
            return Response(
                request_id=request.id, value="", finish="length", usage=usage, tokens=self._told(())
            )
        mark = arguments.think_end_token
        written = engine.generate(
            tokens,
            slot=slot,
            max_tokens=limit,
            sampling=arguments.sampling(request),
            stop=() if mark else settings.stop,  # what is thought may hold them
            enough=_ends_after(mark, settings.stop) if mark else None,
            chances=self._gives_tokens,
        )
        thought, text = split_thinking(written.text, mark) if mark else (None, written.text)
        return Response(
            request_id=request.id,
            value=cut_at_stops(text, settings.stop),
            finish=written.finish,
            usage=Usage(written.read, written.written),
            reasoning=thought,
            tokens=self._told(written.steps),
        )

    def _told(self, steps: Sequence[Step]) -> Tokens | None:
        """The tokens of an answer, where somebody wants to know them."""
        from assay.models.llamacpp.engine import tokens_of

        return tokens_of(steps) if self._gives_tokens else None

    def _likelihood(self, engine: Engine, slot: int, request: Likelihood) -> Response:
        pair = encode_pair(self._text(request), request.continuation, self._encoder)
        pair = fit_pair(pair, self._n_ctx - 1)
        steps, greedy = engine.score(pair.context, pair.continuation, slot=slot)
        usage = Usage(len(pair.context), len(pair.continuation))
        value = LogProbability(_total(steps), greedy)
        return Response(request_id=request.id, value=value, usage=usage, tokens=self._told(steps))

    def _rolling(self, engine: Engine, slot: int, request: RollingLikelihood) -> Response:
        (tokens,) = self._encoder.bare([self._text(request)])
        windows = rolling_windows(tokens, prefix_token=self._prefix[0], max_length=self._n_ctx - 1)
        scored = [engine.score(pair.context, pair.continuation, slot=slot)[0] for pair in windows]
        value = LogProbability(float(sum(map(_total, scored))))
        told = self._told([step for steps in scored for step in steps])
        return Response(request_id=request.id, value=value, usage=Usage(len(tokens), 0), tokens=told)

    # --- what the file says ------------------------------------------------------------------------

    @property
    def _header(self) -> GgufHeader:
        return read_header(self._path)

    @property
    def _template_source(self) -> str:
        header = self._header
        return self._arguments.template(header.named_templates) or header.chat_template

    @cached_property
    def _template(self) -> ChatTemplate:
        from assay.models.tokens.chat_template import ChatTemplate

        header = self._header
        return ChatTemplate(
            self._template_source,
            bos=header.token("bos")[1],
            eos=header.token("eos")[1],
            arguments=self._arguments.chat_template_args,
        )

    @property
    def _n_ctx(self) -> int:
        return self._arguments.length(self._header.trained_length)

    @cached_property
    def _prefix(self) -> tuple[int, str]:
        """What an empty context is replaced by: the start token, else the end token."""
        for which in ("bos", "eos"):
            number, text = self._header.token(which)
            if number is not None:
                return number, text
        raise InvalidOption("the file names neither a start nor an end token", where=str(self._path))

    @cached_property
    def _encoder(self) -> TextEncoder:
        number, text = self._prefix
        return TextEncoder(
            encode=self._encode, prefix_token=number, prefix_text=text, add_bos=self._arguments.add_bos_token
        )

    def _encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        from assay.models.llamacpp.engine import Stopped

        engine = self._engine
        if engine is None:
            raise Stopped
        return engine.encode(texts, special)

    def _text(self, request: Request) -> str:
        from assay.models.tokens.chat_template import text_of

        prompt = request.prompt
        if not prompt.chat:
            return text_of(prompt)
        if not self._template_source:
            raise Unanswerable("the file has no chat template, and none was given as `chat_template`")
        return self._template.render(prompt)

    def _load(self) -> Engine:
        from assay.models.llamacpp.engine import Engine, Loading

        arguments = self._arguments
        return Engine(
            Loading(
                path=str(self._path),
                n_ctx=self._n_ctx,
                slots=arguments.slots,
                threads=arguments.n_threads,
                n_gpu_layers=arguments.n_gpu_layers,
                flash_attn=arguments.flash_attn,
                cache_prompt=arguments.cache_prompt,
                filler=self._prefix[0],
            )
        )


def _total(steps: Sequence[Step]) -> float:
    return sum((step.logprob for step in steps), 0.0)


def _weights_sha256(path: Path) -> str:
    """The hash of the file; of a model in several files, `name-00001-of-00003.gguf`, one of all their hashes."""
    part = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", path.name)
    if part is None:
        return file_sha256(path)
    count = int(part[2])
    files = [path.with_name(f"{part[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    return hashlib.sha256(" ".join(map(file_sha256, files)).encode()).hexdigest()


def _shares(window: Sequence[Request], slots: int) -> list[Iterator[Request]]:
    """The window in alphabetical order, a stretch for each slot."""
    ordered = sorted(window, key=lambda request: (request.prompt.text, request.prompt.digest))
    size = -(-len(ordered) // slots) or 1
    return [iter(ordered[at : at + size]) for at in range(0, len(ordered), size)]


def _ends_after(mark: str, stops: Sequence[str]) -> Callable[[str], bool]:
    """Whether a stop string stands behind the end of the thinking."""

    def enough(text: str) -> bool:
        answer = text.rpartition(mark)[2] if mark in text else ""
        return any(stop and stop in answer for stop in stops)

    return enough


def _timed(response: Response, seconds: float) -> Response:
    from dataclasses import replace

    return replace(response, seconds=seconds)
