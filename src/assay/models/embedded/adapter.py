"""`EmbeddedModel`: a tiny multimodal model that ships with Assay.

It needs no GPU, no download and no torch, so the first run, the tests and the examples work everywhere. `open()` imports
NumPy.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import AssayError, DatasetError, InvalidOption
from assay.core.ports import Ability, Traits, TruncatedPrompt
from assay.core.records.messages import Image, Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.embedded.chat_template import ChatTemplate, UnsupportedMedia, render_plain

if TYPE_CHECKING:
    from assay.models.embedded.engine import EmbeddedEngine, TokenPrompt
    from assay.models.embedded.tokenizer import CharacterTokenizer

__all__ = ["SHIPPED_WEIGHTS", "EmbeddedModel"]

SHIPPED_WEIGHTS = Path(__file__).parent / "weights"
_NEEDED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")
_ENGINE_VERSION = "numpy 3"
"""Increase this when a change of the engine alters results, so that cached answers are not mixed with new ones."""

_MAX_SLICE_S = 0.05
_DEFAULT_MAX_TOKENS = 256


class EmbeddedModel:
    """A tiny multimodal model that ships with Assay: text and images, on NumPy.

    >>> EmbeddedModel(seed="7").name
    'embedded'
    """

    def __init__(self, *, weights: str | Path = "", seed: int | str = 0, **unknown: Any) -> None:
        if unknown:
            names = ", ".join(f"`{name}`" for name in sorted(unknown))
            raise InvalidOption(
                f"unknown argument {names} of the model `embedded`",
                where="model_args",
                hint="arguments: `weights` (a model folder) and `seed` (an integer), both optional",
            )
        try:
            self._seed = int(seed)
        except (TypeError, ValueError):
            raise InvalidOption(f"`seed` must be an integer, got {seed!r}", where="model_args") from None
        self._folder = Path(weights) if weights else SHIPPED_WEIGHTS
        self._template = ChatTemplate(self._folder / "chat_template.jinja")
        self._engine: EmbeddedEngine | None = None
        self._reports_tokens = False

    def give_tokens(self) -> None:
        """Include tokens and their log probabilities in every response."""
        self._reports_tokens = True

    @property
    def name(self) -> str:
        """`embedded`, or the name of the `weights` folder."""
        return "embedded" if self._folder == SHIPPED_WEIGHTS else self._folder.name

    @property
    def traits(self) -> Traits:
        """All abilities except audio and video. Windows are long enough to share contexts."""
        abilities: frozenset[Ability] = frozenset({"generate", "likelihood", "rolling", "chat", "image"})
        return Traits(abilities=abilities, window=64, in_flight=1, tokens=True)

    async def identify(self) -> Mapping[str, str]:
        """Return the name, the engine version, the hashes of all files, and the seed."""
        self._check_folder()
        hashes = await asyncio.to_thread(
            lambda: {name: _hash_file(self._folder / name) for name in _NEEDED_FILES}
        )
        others = sorted(set(_NEEDED_FILES) - {"model.safetensors", "chat_template.jinja"})
        return {
            "name": self.name,
            "weights_sha256": hashes["model.safetensors"],
            "template_sha256": hashes["chat_template.jinja"],
            **{f"{name.partition('.')[0]}_sha256": hashes[name] for name in others},
            "engine": _ENGINE_VERSION,
            "dtype": "float32",
            "seed": str(self._seed),
        }

    def preview(self, request: Request) -> str:
        """Return the text that the model will read, with its chat template applied and images as `<image>`."""
        return self._render(request.prompt)

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that exceeds the context length. Prompts with images are not counted."""
        if isinstance(request, RollingLikelihood) or request.prompt.has_media:
            return None
        from assay.models.embedded.engine import MAX_RESERVED_TOKENS

        text = self._render(request.prompt)
        if isinstance(request, Likelihood):
            context, whole, reserved = text.rstrip(), text + request.continuation, -1
        else:
            limit = request.settings.max_tokens
            context, whole = text, text
            reserved = min(_DEFAULT_MAX_TOKENS if limit is None else limit, MAX_RESERVED_TOKENS)
        if 1 + len(whole) + reserved <= self._context_length:
            return None  # a token has at least one character
        excess = len(self._encode_text(whole)) + reserved - self._context_length
        if excess <= 0:
            return None
        kept = self._encode_text(context)[excess:]
        pieces = self._tokenizer.decode_each(kept)
        return TruncatedPrompt(text="".join(pieces), tokens=len(kept), truncated_tokens=excess)

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens of the prompt that the model will read. Prompts with images are not counted."""
        if request.prompt.has_media:
            return None
        if (truncated := self.preview_truncation(request)) is not None:
            return truncated.tokens
        text = self._render(request.prompt)
        return len(self._encode_text(text.rstrip() if isinstance(request, Likelihood) else text))

    @cached_property
    def _tokenizer(self) -> CharacterTokenizer:
        from assay.models.embedded.tokenizer import CharacterTokenizer

        return CharacterTokenizer.read(self._folder / "tokenizer.json")

    @cached_property
    def _context_length(self) -> int:
        config = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
        return int(config["text_config"]["max_position_embeddings"])

    def _encode_text(self, text: str) -> list[int]:
        """Return token ids with the start token first, as the engine does."""
        ids, start = self._tokenizer.encode(text), self._tokenizer.find_id("<s>")
        return ids if ids[:1] == [start] else [start, *ids]

    async def open(self) -> None:
        """Load the weights, which takes tens of milliseconds."""
        self._check_folder()
        if self._engine is None:
            self._engine = await asyncio.to_thread(_load, self._folder)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer requests one after another in a thread, grouped by prompt."""
        by_prompt: dict[str, list[Request]] = {}
        for request in window:
            by_prompt.setdefault(request.prompt.digest, []).append(request)
        pending = (request for requests in by_prompt.values() for request in requests)
        while outcomes := await asyncio.to_thread(self._answer_slice, pending):
            for outcome in outcomes:
                yield outcome

    async def close(self) -> None:
        """Release the weights."""
        self._engine = None

    def _check_folder(self) -> None:
        missing = [name for name in _NEEDED_FILES if not (self._folder / name).is_file()]
        if missing:
            raise DatasetError(
                f"missing files in the model folder: {', '.join(missing)}",
                where=str(self._folder),
                hint="`weights` must be a folder made by tools/embedded_model; omit it for the packaged weights",
            )

    def _answer_slice(self, pending: Iterator[Request]) -> list[Outcome]:
        """Answer requests for up to 50 ms, at least one."""
        outcomes: list[Outcome] = []
        deadline = time.monotonic() + _MAX_SLICE_S
        for request in pending:
            outcomes.append(self._answer_one(request))
            if time.monotonic() > deadline:
                break
        return outcomes

    def _answer_one(self, request: Request) -> Outcome:
        from assay.models.embedded.engine import InvalidPrompt

        engine = self._engine
        if engine is None:
            raise RuntimeError("answer() was called before open()")
        started = time.monotonic()
        try:
            match request:
                case Generate():
                    response = self._generate(engine, request)
                case Likelihood():
                    response = self._likelihood(engine, request)
                case RollingLikelihood():
                    response = self._rolling(engine, request)
        except (InvalidPrompt, _MediaProblem) as error:
            kind = "bad media" if isinstance(error, _MediaProblem) else "bad request"
            return Failure(request_id=request.id, kind=kind, message=str(error))
        return replace(response, seconds=time.monotonic() - started)

    def _generate(self, engine: EmbeddedEngine, request: Generate) -> Response:
        from assay.models.embedded.sampling import TokenSampler, make_generator

        settings = request.settings
        limit = settings.max_tokens
        seed = self._seed if settings.seed is None else settings.seed
        generated = engine.generate(
            self._encode_prompt(engine, request.prompt, self._render(request.prompt)),
            stop=settings.stop,
            max_tokens=_DEFAULT_MAX_TOKENS if limit is None else limit,
            sampler=TokenSampler(
                temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k
            ),
            generator=make_generator(seed, request.prompt.digest, request.repeat),
            log_probabilities=self._reports_tokens,
        )
        ids, log_probabilities = (
            [token for token, _ in generated.tokens],
            [chance for _, chance in generated.tokens],
        )
        return Response(
            request_id=request.id,
            value=generated.text,
            finish="stop" if generated.finish == "stop" else "length",
            usage=Usage(
                generated.prompt_tokens,
                generated.generated_tokens,
                truncated_tokens=generated.truncated_tokens,
            ),
            tokens=self._build_tokens(engine, ids, log_probabilities),
        )

    def _likelihood(self, engine: EmbeddedEngine, request: Likelihood) -> Response:
        """Score a continuation. Trailing whitespace of the context belongs to it; an empty context is the start token."""
        text = self._render(request.prompt)
        context = text.rstrip()
        whole = engine.encode(text + request.continuation)
        prompt = self._encode_prompt(engine, request.prompt, context)
        continuation = whole[len(prompt.ids) :]
        log_probabilities, greedy = engine.score_tokens(prompt, continuation)
        truncated = engine.count_excess_tokens(prompt, continuation)
        return Response(
            request_id=request.id,
            value=LogProbability(float(log_probabilities.sum()), greedy),
            usage=Usage(len(prompt.ids) - truncated, len(continuation), truncated_tokens=truncated),
            tokens=self._build_tokens(engine, continuation, log_probabilities),
        )

    def _rolling(self, engine: EmbeddedEngine, request: RollingLikelihood) -> Response:
        text = request.prompt.text
        portions, ids = engine.score_rolling(text), engine.encode(text)
        return Response(
            request_id=request.id,
            value=LogProbability(sum((float(portion.sum()) for portion in portions), 0.0)),
            usage=Usage(len(ids), 0),
            tokens=self._build_tokens(engine, ids, [chance for portion in portions for chance in portion]),
        )

    def _build_tokens(
        self, engine: EmbeddedEngine, ids: Sequence[int], log_probabilities: Iterable[float]
    ) -> Tokens | None:
        """Return the tokens of an answer, or None if they are not requested."""
        if not self._reports_tokens:
            return None
        return Tokens(engine.tokenizer.decode_each(ids), tuple(float(chance) for chance in log_probabilities))

    def _render(self, prompt: Prompt) -> str:
        try:
            return self._template.render(prompt) if prompt.chat else render_plain(prompt)
        except UnsupportedMedia as error:
            raise _MediaProblem(str(error)) from None

    def _encode_prompt(self, engine: EmbeddedEngine, prompt: Prompt, text: str) -> TokenPrompt:
        from assay.models.embedded.engine import PromptImage, TokenPrompt

        images = [
            PromptImage(part.digest, partial(_load_image, part))
            for part in prompt.media
            if isinstance(part, Image)
        ]
        return TokenPrompt(engine.encode(text), tuple(images))


class _MediaProblem(ValueError):
    """An image that cannot be loaded, or a medium that the model does not read."""


def _load_image(part: Image) -> Any:
    try:
        image = part.load()
    except (AssayError, OSError, ValueError, SyntaxError) as error:  # what Pillow and our loader raise
        raise _MediaProblem(f"cannot load image: {error}") from error
    if not hasattr(image, "convert"):
        raise _MediaProblem(f"expected a PIL image, got {type(image).__name__}")
    return image


def _load(folder: Path) -> EmbeddedEngine:
    from assay.models.embedded.engine import EmbeddedEngine

    return EmbeddedEngine(folder)


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
