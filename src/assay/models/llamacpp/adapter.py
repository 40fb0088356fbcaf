"""`LlamaCppModel`: a GGUF file in llama.cpp, in this process.

Chat messages use the chat template in the file; plain prompts are passed unchanged. A prompt that leaves no room for the
answer is truncated on the left, as in the other adapters; a continuation longer than the context fails its request. Nothing
is loaded before `open()`: abilities and identity come from the header and the hash of the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Traits
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.file_digests import hash_file
from assay.models.finish_reasons import GenerationFailed
from assay.models.llamacpp.arguments import LlamaCppArguments
from assay.models.llamacpp.gguf import GgufHeader, read_header
from assay.models.packages import require_package
from assay.models.reasoning import ReasoningFormat, ReasoningSplitter, detect_format
from assay.models.tokens import (
    TextEncoder,
    Unanswerable,
    cut_at_stops,
    encode_pair,
    fit_pair,
    fit_prompt,
    split_rolling_windows,
)
from assay.models.tool_calls import CallFormat, detect_call_format
from assay.models.tool_calls.separation import separate_calls

if TYPE_CHECKING:
    from assay.models.llamacpp.engine import GeneratedText, LlamaCppEngine, TokenStep
    from assay.models.tokens.chat_template import ChatTemplate

__all__ = ["LlamaCppModel", "hash_weights"]

_PACKAGE = "xllamacpp"


class LlamaCppModel:
    """Runs a GGUF file: generation, chat, likelihoods.

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
        """`pretrained` (or `model`): the GGUF file. `batch_size`: number of requests computed together. See
        `LlamaCppArguments` for the rest."""
        path = str(pretrained or model)
        if not path:
            raise InvalidOption(
                f"missing argument `pretrained` of the model `{self.extra}`",
                where="--model_args",
                hint="--model_args pretrained=path/to/model.gguf",
            )
        self._path = Path(path).expanduser()
        if chat_template:
            given["chat_template"] = chat_template
        self._arguments = LlamaCppArguments.parse(given, batch_size=batch_size, model=self.extra)
        self.engine: LlamaCppEngine | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._reports_tokens = False

    @property
    def name(self) -> str:
        """The file name without its extension."""
        return self._path.stem

    @property
    def traits(self) -> Traits:
        """The file needs a chat template for chat. Windows are long enough for prompts to share prefixes."""
        abilities: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._template_source:
            abilities.add("chat")
        if self._call_format is not None:
            abilities.add("tools")
        system = not self._template_source or self._template.supports_system_message
        return Traits(abilities=frozenset(abilities), system=system, window=64, in_flight=1, tokens=True)

    def give_tokens(self) -> None:
        """Include tokens and their log probabilities in every response."""
        self._reports_tokens = True

    async def identify(self) -> Mapping[str, str]:
        """Return the hashes of file and template, the version of llama.cpp, and all arguments that change answers."""
        version = require_package(_PACKAGE, self.extra, f"the model `{self.extra}`")
        _ = self._header
        return {
            "name": self.name,
            _PACKAGE: version,
            "weights_sha256": await asyncio.to_thread(hash_weights, self._path),
            "template_sha256": hashlib.sha256(self._template_source.encode()).hexdigest(),
            "n_ctx": str(self._n_ctx),
            **self._arguments.to_identity(),
        }

    @cached_property
    def _reasoning_format(self) -> ReasoningFormat | None:
        return detect_format(self._template_source)

    @cached_property
    def _call_format(self) -> CallFormat | None:
        return detect_call_format(self._template_source)

    def preview(self, request: Request) -> str:
        """Return the text that the model will read, with its chat template applied."""
        return self._render(request)

    async def open(self) -> None:
        """Load the file, which takes seconds for small models."""
        require_package(_PACKAGE, self.extra, f"the model `{self.extra}`")
        if self.engine is None:
            self.engine = await asyncio.to_thread(self._load)
            self._threads = ThreadPoolExecutor(self._arguments.slots, thread_name_prefix="assay-llamacpp")

    async def close(self) -> None:
        """Stop all generation and release the weights."""
        engine, threads = self.engine, self._threads
        self.engine = self._threads = None
        if engine is not None:
            engine.stop()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer prompts in alphabetical order, so that a slot computes shared prefixes once."""
        engine, threads = self.engine, self._threads
        if engine is None or threads is None:
            raise RuntimeError("answer() was called before open()")
        loop = asyncio.get_running_loop()
        waiting = {
            loop.run_in_executor(threads, self._answer_next, engine, slot, share)
            for slot, share in enumerate(_split_among_slots(window, self._arguments.slots))
        }
        # each call answers one request and returns the rest, so that answers are yielded one by one
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    outcome, slot, rest = future.result()
                    if outcome is None:
                        continue
                    waiting.add(loop.run_in_executor(threads, self._answer_next, engine, slot, rest))
                    yield outcome
        finally:
            for future in waiting:
                future.cancel()

    def _answer_next(
        self, engine: LlamaCppEngine, slot: int, rest: Iterator[Request]
    ) -> tuple[Outcome | None, int, Iterator[Request]]:
        request = next(rest, None)
        return None if request is None else self._answer_one(engine, slot, request), slot, rest

    def _answer_one(self, engine: LlamaCppEngine, slot: int, request: Request) -> Outcome:
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
        except GenerationFailed as error:
            return Failure(request_id=request.id, kind=error.kind, message=str(error))
        return replace(response, seconds=time.monotonic() - started)

    def _generate(self, engine: LlamaCppEngine, slot: int, request: Generate) -> Response:
        arguments, settings = self._arguments, request.settings
        limit = arguments.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        prompt = self._render(request)
        (tokens,) = self._encoder([prompt])
        whole = tokens or [self._prefix_token[0]]
        known = self._reasoning_format if request.prompt.chat else None
        splitter = ReasoningSplitter.for_prompt(known, prompt, end_mark=arguments.think_end_token)
        budget = settings.thinking_budget if splitter.format is not None else None
        tokens = fit_prompt(whole, self._n_ctx, limit + self._count_reasoning_tokens(splitter, budget))
        truncated = len(whole) - len(tokens)
        if limit < 1:
            usage = Usage(len(tokens), 0, truncated_tokens=truncated)
            return Response(
                request_id=request.id, value="", finish="length", usage=usage, tokens=self._build_tokens(())
            )
        generate = partial(
            engine.generate,
            slot=slot,
            sampling=arguments.build_sampling(request),
            stop=() if splitter.is_active else settings.stop,  # the reasoning may contain them
            log_probabilities=self._reports_tokens,
        )
        if budget is None:
            generated = generate(
                tokens,
                max_tokens=limit,
                is_complete=(lambda text: splitter.has_stop(text, settings.stop))
                if splitter.is_active
                else None,
            )
        else:
            generated = self._generate_within_budget(generate, tokens, splitter, request, limit)
        call_format = self._call_format if request.native_tools is not None else None
        found, calls = separate_calls(generated.text, splitter, call_format)
        return Response(
            request_id=request.id,
            value=cut_at_stops(found.answer, settings.stop),
            tool_calls=calls,
            finish=generated.finish,
            usage=Usage(
                generated.prompt_tokens,
                generated.generated_tokens,
                reasoning_tokens=len(self._encoder([found.reasoning])[0]) if found.reasoning else 0,
                truncated_tokens=truncated,
            ),
            reasoning=found.reasoning,
            tokens=self._build_tokens(generated.steps),
        )

    def _count_reasoning_tokens(self, splitter: ReasoningSplitter, budget: int | None) -> int:
        """Return the tokens that a thinking budget adds to the token limit of the answer: the budget and the end mark."""
        if budget is None or splitter.format is None:
            return 0
        return max(1, budget) + len(self._encoder([splitter.format.closing_text])[0])

    def _generate_within_budget(
        self,
        generate: Callable[..., GeneratedText],
        tokens: list[int],
        splitter: ReasoningSplitter,
        request: Generate,
        limit: int,
    ) -> GeneratedText:
        """Generate at most `thinking_budget` tokens of reasoning, end the reasoning, and generate the answer."""
        stops = request.settings.stop
        budget = request.settings.thinking_budget or 0
        is_complete = partial(splitter.has_stop, stops=stops)
        first = generate(tokens, max_tokens=max(1, budget), is_complete=is_complete)
        if first.finish != "length":
            return first
        written = first.text + splitter.end_reasoning(first.text)
        (more,) = self._encoder([written])
        second = generate(
            [*tokens, *more], max_tokens=limit, is_complete=lambda text: is_complete(written + text)
        )
        return replace(
            second,
            text=written + second.text,
            prompt_tokens=first.prompt_tokens,
            generated_tokens=len(more) + second.generated_tokens,
            steps=(*first.steps, *second.steps),
        )

    def _build_tokens(self, steps: Sequence[TokenStep]) -> Tokens | None:
        """Return the tokens of an answer, or None if they are not requested."""
        from assay.models.llamacpp.engine import tokens_from_steps

        return tokens_from_steps(steps) if self._reports_tokens else None

    def _likelihood(self, engine: LlamaCppEngine, slot: int, request: Likelihood) -> Response:
        pair = encode_pair(self._render(request), request.continuation, self._encoder)
        pair = fit_pair(pair, self._n_ctx - 1)
        steps, greedy = engine.score(pair.context, pair.continuation, slot=slot)
        usage = Usage(len(pair.context), len(pair.continuation), truncated_tokens=pair.truncated)
        value = LogProbability(_sum_log_probabilities(steps), greedy)
        return Response(request_id=request.id, value=value, usage=usage, tokens=self._build_tokens(steps))

    def _rolling(self, engine: LlamaCppEngine, slot: int, request: RollingLikelihood) -> Response:
        (tokens,) = self._encoder.encode_bare([self._render(request)])
        windows = split_rolling_windows(
            tokens, prefix_token=self._prefix_token[0], max_length=self._n_ctx - 1
        )
        scored = [engine.score(pair.context, pair.continuation, slot=slot)[0] for pair in windows]
        value = LogProbability(float(sum(map(_sum_log_probabilities, scored))))
        scored_tokens = self._build_tokens([step for steps in scored for step in steps])
        return Response(request_id=request.id, value=value, usage=Usage(len(tokens), 0), tokens=scored_tokens)

    # --- header of the file ------------------------------------------------------------------------

    @property
    def _header(self) -> GgufHeader:
        return read_header(self._path)

    @property
    def _template_source(self) -> str:
        header = self._header
        return self._arguments.find_template(header.named_templates) or header.chat_template

    @cached_property
    def _template(self) -> ChatTemplate:
        from assay.models.tokens.chat_template import ChatTemplate

        header = self._header
        return ChatTemplate(
            self._template_source,
            bos=header.find_token("bos")[1],
            eos=header.find_token("eos")[1],
            arguments=self._arguments.chat_template_args,
        )

    @property
    def _n_ctx(self) -> int:
        return self._arguments.find_context_length(self._header.context_length)

    @cached_property
    def _prefix_token(self) -> tuple[int, str]:
        """Id and text of the token that replaces an empty context: the start token, else the end token."""
        for which in ("bos", "eos"):
            number, text = self._header.find_token(which)
            if number is not None:
                return number, text
        raise InvalidOption("the file has neither a start token nor an end token", where=str(self._path))

    @cached_property
    def _encoder(self) -> TextEncoder:
        number, text = self._prefix_token
        return TextEncoder(
            encode=self._encode, prefix_token=number, prefix_text=text, add_bos=self._arguments.add_bos_token
        )

    def _encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        from assay.models.llamacpp.engine import GenerationStopped

        engine = self.engine
        if engine is None:
            raise GenerationStopped
        return engine.encode(texts, special)

    def _render(self, request: Request) -> str:
        from assay.models.tokens.chat_template import require_text

        prompt = request.prompt
        if not prompt.chat:
            return require_text(prompt)
        if not self._template_source:
            raise Unanswerable("the file has no chat template; set `chat_template`")
        if not isinstance(request, Generate):
            return self._template.render(prompt)
        tools, effort = request.native_tools, request.settings.reasoning_effort
        return self._template.render(
            prompt,
            None if tools is None or tools.choice == "none" else tools,
            **({"reasoning_effort": effort} if effort else {}),
        )

    def _load(self) -> LlamaCppEngine:
        from assay.models.llamacpp.engine import LlamaCppEngine, LoadingOptions

        arguments = self._arguments
        return LlamaCppEngine(
            LoadingOptions(
                path=str(self._path),
                n_ctx=self._n_ctx,
                slots=arguments.slots,
                threads=arguments.n_threads,
                n_gpu_layers=arguments.n_gpu_layers,
                flash_attn=arguments.flash_attn,
                cache_prompt=arguments.cache_prompt,
                filler=self._prefix_token[0],
            )
        )


def _sum_log_probabilities(steps: Sequence[TokenStep]) -> float:
    return sum((step.logprob for step in steps), 0.0)


def hash_weights(path: Path) -> str:
    """Return the hash of the file, or one hash of all files of a split model (`name-00001-of-00003.gguf`)."""
    part = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", path.name)
    if part is None:
        return hash_file(path)
    count = int(part[2])
    files = [path.with_name(f"{part[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    return hashlib.sha256(" ".join(map(hash_file, files)).encode()).hexdigest()


def _split_among_slots(window: Sequence[Request], slots: int) -> list[Iterator[Request]]:
    """Sort a window alphabetically and split it into one part per slot."""
    ordered = sorted(window, key=lambda request: (request.prompt.text, request.prompt.digest))
    size = -(-len(ordered) // slots) or 1
    return [iter(ordered[start : start + size]) for start in range(0, len(ordered), size)]
