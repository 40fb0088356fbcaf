"""The embedded model behind the `Model` port: a tiny multimodal model that ships with Assay.

It needs no GPU, no download and no torch, so the first run, the tests and the examples work everywhere.
NumPy is imported by `open()`, not before.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import AssayError, DatasetError, InvalidOption
from assay.core.messages import Image, Prompt
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.embedded.chat_template import ChatTemplate, UnreadablePart, plain_text

if TYPE_CHECKING:
    from assay.models.embedded.engine import Engine, TokenPrompt

__all__ = ["SHIPPED_WEIGHTS", "EmbeddedModel"]

SHIPPED_WEIGHTS = Path(__file__).parent / "weights"
_NEEDED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")
_ENGINE = "numpy 2"
"""To be counted up when a change of the engine changes bits, so that kept answers are not mixed with new ones."""

_SLICE_S = 0.05
_DEFAULT_MAX_TOKENS = 256


class EmbeddedModel:
    """A tiny multimodal model that ships with Assay: text and pictures, on NumPy.

    >>> EmbeddedModel(seed="7").name
    'embedded'
    """

    def __init__(self, *, weights: str | Path = "", seed: int | str = 0, **unknown: Any) -> None:
        if unknown:
            names = ", ".join(f"`{name}`" for name in sorted(unknown))
            raise InvalidOption(
                f"the model `embedded` does not know the argument {names}",
                where="model_args",
                hint="it takes `weights` (a model folder) and `seed` (a whole number), both optional",
            )
        try:
            self._seed = int(seed)
        except (TypeError, ValueError):
            raise InvalidOption(f"`seed` must be a whole number, got {seed!r}", where="model_args") from None
        self._folder = Path(weights) if weights else SHIPPED_WEIGHTS
        self._template = ChatTemplate(self._folder / "chat_template.jinja")
        self._engine: Engine | None = None
        self._gives_tokens = False

    def give_tokens(self) -> None:
        """Every response brings its tokens from now on."""
        self._gives_tokens = True

    @property
    def name(self) -> str:
        """`embedded`, or the name of the folder given as `weights`."""
        return "embedded" if self._folder == SHIPPED_WEIGHTS else self._folder.name

    @property
    def traits(self) -> Traits:
        """Everything but sound and video; one sequence at a time, in windows long enough to share contexts."""
        abilities: frozenset[Ability] = frozenset({"generate", "likelihood", "rolling", "chat", "image"})
        return Traits(abilities=abilities, window=64, in_flight=1, tokens=True)

    async def identify(self) -> Mapping[str, str]:
        """Name, engine, hashes of weights and template, and the seed that sampled answers start from."""
        self._check_folder()
        hashes = await asyncio.to_thread(
            lambda: {name: _sha256(self._folder / name) for name in _NEEDED_FILES}
        )
        others = sorted(set(_NEEDED_FILES) - {"model.safetensors", "chat_template.jinja"})
        return {
            "name": self.name,
            "weights_sha256": hashes["model.safetensors"],
            "template_sha256": hashes["chat_template.jinja"],
            **{f"{name.partition('.')[0]}_sha256": hashes[name] for name in others},
            "engine": _ENGINE,
            "dtype": "float32",
            "seed": str(self._seed),
        }

    def preview(self, request: Request) -> str:
        """What the model will read, its chat template applied; pictures as `<image>`."""
        return self._text(request.prompt)

    async def open(self) -> None:
        """Load the weights; some tens of milliseconds."""
        self._check_folder()
        if self._engine is None:
            self._engine = await asyncio.to_thread(_load, self._folder)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer one after the other in a thread, requests with the same prompt together."""
        by_prompt: dict[str, list[Request]] = {}
        for request in window:
            by_prompt.setdefault(request.prompt.digest, []).append(request)
        pending = (request for requests in by_prompt.values() for request in requests)
        while outcomes := await asyncio.to_thread(self._answer_slice, pending):
            for outcome in outcomes:
                yield outcome

    async def close(self) -> None:
        """Forget the weights."""
        self._engine = None

    def _check_folder(self) -> None:
        missing = [name for name in _NEEDED_FILES if not (self._folder / name).is_file()]
        if missing:
            raise DatasetError(
                f"the model folder lacks {', '.join(missing)}",
                where=str(self._folder),
                hint="`weights` names a folder made by tools/embedded_model; leave it out for the one that ships",
            )

    def _answer_slice(self, pending: Iterator[Request]) -> list[Outcome]:
        """As many answers as fit into a twentieth of a second, at least one while any is left."""
        outcomes: list[Outcome] = []
        deadline = time.monotonic() + _SLICE_S
        for request in pending:
            outcomes.append(self._answer_one(request))
            if time.monotonic() > deadline:
                break
        return outcomes

    def _answer_one(self, request: Request) -> Outcome:
        from assay.models.embedded.engine import BadPrompt

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
        except (BadPrompt, _BadMedia) as error:
            kind = "bad media" if isinstance(error, _BadMedia) else "bad request"
            return Failure(request_id=request.id, kind=kind, message=str(error))
        return replace(response, seconds=time.monotonic() - started)

    def _generate(self, engine: Engine, request: Generate) -> Response:
        from assay.models.embedded.sampling import TokenChoice, make_generator

        settings = request.settings
        limit = settings.max_tokens
        seed = self._seed if settings.seed is None else settings.seed
        written = engine.generate(
            self._tokens(engine, request.prompt, self._text(request.prompt)),
            stop=settings.stop,
            max_tokens=_DEFAULT_MAX_TOKENS if limit is None else limit,
            choice=TokenChoice(temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k),
            generator=make_generator(seed, request.prompt.digest, request.repeat),
            chances=self._gives_tokens,
        )
        ids, chances = [token for token, _ in written.tokens], [chance for _, chance in written.tokens]
        return Response(
            request_id=request.id,
            value=written.text,
            finish="stop" if written.finish == "stop" else "length",
            usage=Usage(written.read, written.written),
            tokens=self._told(engine, ids, chances),
        )

    def _likelihood(self, engine: Engine, request: Likelihood) -> Response:
        """Trailing white space of the context belongs to the continuation; no context means the start token."""
        text = self._text(request.prompt)
        context = text.rstrip()
        whole = engine.encode(text + request.continuation)
        prompt = self._tokens(engine, request.prompt, context)
        continuation = whole[len(prompt.ids) :]
        chances, greedy = engine.token_chances(prompt, continuation)
        return Response(
            request_id=request.id,
            value=LogProbability(float(chances.sum()), greedy),
            usage=Usage(len(prompt.ids), len(continuation)),
            tokens=self._told(engine, continuation, chances),
        )

    def _rolling(self, engine: Engine, request: RollingLikelihood) -> Response:
        text = request.prompt.text
        portions, ids = engine.rolling_chances(text), engine.encode(text)
        return Response(
            request_id=request.id,
            value=LogProbability(sum((float(portion.sum()) for portion in portions), 0.0)),
            usage=Usage(len(ids), 0),
            tokens=self._told(engine, ids, [chance for portion in portions for chance in portion]),
        )

    def _told(self, engine: Engine, ids: Sequence[int], chances: Iterable[float]) -> Tokens | None:
        """The tokens of an answer, where somebody wants to know them."""
        if not self._gives_tokens:
            return None
        return Tokens(engine.tokenizer.pieces(ids), tuple(float(chance) for chance in chances))

    def _text(self, prompt: Prompt) -> str:
        try:
            return self._template.render(prompt) if prompt.chat else plain_text(prompt)
        except UnreadablePart as error:
            raise _BadMedia(str(error)) from None

    def _tokens(self, engine: Engine, prompt: Prompt, text: str) -> TokenPrompt:
        from assay.models.embedded.engine import Picture, TokenPrompt

        pictures = [
            Picture(part.digest, partial(_load_picture, part))
            for part in prompt.media
            if isinstance(part, Image)
        ]
        return TokenPrompt(engine.encode(text), tuple(pictures))


class _BadMedia(ValueError):
    """A picture that does not load, or a medium the model cannot read."""


def _load_picture(part: Image) -> Any:
    try:
        picture = part.load()
    except (AssayError, OSError, ValueError, SyntaxError) as error:  # what Pillow and our loader raise
        raise _BadMedia(f"a picture does not load: {error}") from error
    if not hasattr(picture, "convert"):
        raise _BadMedia(f"a picture is a {type(picture).__name__}, not a PIL image")
    return picture


def _load(folder: Path) -> Engine:
    from assay.models.embedded.engine import Engine

    return Engine(folder)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
