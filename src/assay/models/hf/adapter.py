"""`HfModel`: a transformers checkpoint behind the `Model` port.

The checkpoint determines the backend: text, or text with images, audio and video. One thread tokenizes and another runs
the model. With two windows in flight, the next window is ready when the model needs it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from os import PathLike
from typing import Any, ClassVar

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.fingerprints import digest_text
from assay.core.ports import ComputeMeter, Traits, TruncatedPrompt
from assay.core.records.messages import Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.hf.arguments import HfArguments, parse_arguments
from assay.models.hf.backend import (
    Backend,
    InterruptibleBackend,
    MeasurableBackend,
    TokenReportingBackend,
    TruncationPreviewBackend,
)
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import load_tokenizer, read_template
from assay.models.hf.multimodal.options import MediaOptions, split_media_options
from assay.models.presets import DEFAULT_PRESET, ModelPreset

__all__ = ["HfModel"]

_MAX_WINDOW = 512
"""Maximum requests per window. Large enough to amortize a few-shot prefix over a hundred documents, small enough that a
window takes seconds to minutes."""

_POLL_INTERVAL_S = 0.05
"""Interval between checks for new outcomes."""

_ENGINE_VERSION = "tokens 1"
"""Increase this when a code change alters answers, so that cached answers are not mixed with new ones."""


class HfModel:
    """A model in the format of transformers: `pretrained` is a folder or a name on the hub.

    In Python, `pretrained` and `tokenizer` may also be objects that are already loaded. A loaded model answers texts in this
    process, on its device and in its dtype, and is not changed.

    >>> HfModel(pretrained="gpt2", dtype="float32").name
    'gpt2'
    """

    preset: ClassVar[ModelPreset] = DEFAULT_PRESET
    model_name: ClassVar[str] = "hf"

    def __init__(
        self,
        *,
        pretrained: Any = "",
        batch_size: int | str = 1,
        device: str | None = None,
        chat_template: str | None = None,
        **arguments: Any,
    ) -> None:
        given = {"batch_size": batch_size, "device": device, "chat_template": chat_template, **arguments}
        pretrained = (
            arguments.get("model", "") if isinstance(pretrained, str) and not pretrained else pretrained
        )
        given.pop("model", None)
        model, tokenizer = _take_object(given, "pretrained", pretrained), _take_object(given, "tokenizer")
        given["pretrained"] = given.get("pretrained") or self.preset.pretrained
        self._media_options, given = split_media_options(given, self.model_name)
        self._arguments = parse_arguments(given, name=self.model_name)
        if model is not None:
            _check_loaded_model(model, tokenizer, self._arguments)
            tokenizer = load_tokenizer(self._arguments) if tokenizer is None else tokenizer
            self._arguments = replace(self._arguments, tokenizer=None)
        self._checkpoint = Checkpoint(
            self._arguments.pretrained,
            self._arguments.revision,
            self._arguments.subfolder,
            model=model,
            tokenizer=tokenizer,
        )
        self._threads: list[ThreadPoolExecutor] = []
        self._first_pass_at: float | None = None
        self._last_pass_at = self._setup_seconds = 0.0

    @property
    def name(self) -> str:
        """The name on the hub, or the last part of the folder's path."""
        return self._checkpoint.name

    @property
    def traits(self) -> Traits:
        """Read from the small files of the checkpoint; no weights are loaded."""
        backend = self.backend
        window = min(backend.window, _MAX_WINDOW)
        return Traits(
            abilities=backend.abilities,
            needs=backend.needs,
            system=self._checkpoint.supports_system_message(self._arguments.chat_template),
            answers_without_system=True,
            window=window,
            in_flight=2,
            tokens=isinstance(backend, TokenReportingBackend),
        )

    def give_tokens(self) -> None:
        """Include tokens and their log probabilities in every response, if the backend can report them."""
        if isinstance(self.backend, TokenReportingBackend):
            self.backend.reports_tokens = True

    @cached_property
    def backend(self) -> Backend:
        """The text or multimodal backend, as the checkpoint or the argument `backend` requires."""
        requested = self._arguments.backend
        kind = self._checkpoint.kind if requested == "default" else requested
        if kind == "multimodal":
            from assay.models.hf.multimodal import MultimodalBackend

            return MultimodalBackend(self._arguments, self._checkpoint, self._media_options, self.preset)
        if self._media_options != MediaOptions():
            names = ", ".join(f"`{name}`" for name in self._media_options.to_identity()) or "`use_cache`"
            raise InvalidOption(
                f"`{self.name}` is a text-only model and does not use {names}", where="--model_args"
            )
        from assay.models.hf.text.backend import TextBackend

        return TextBackend(self._arguments, self._checkpoint)

    async def identify(self) -> Mapping[str, str]:
        """Return what answers depend on: the content of the model files and the arguments that change answers.

        Left out: device and batch size, which change only the last bits; the location of the files; and the versions of
        torch and transformers, which are in the manifest of the run.
        """
        _check_packages()
        return await asyncio.to_thread(self._build_identity)

    def _build_identity(self) -> dict[str, str]:
        arguments, checkpoint = self._arguments, self._checkpoint
        others = {
            name: Checkpoint(source, arguments.revision)
            for name in ("tokenizer", "peft", "delta")
            if (source := getattr(arguments, name))
        }
        found = {
            "name": self.name,
            "engine": _ENGINE_VERSION,
            **checkpoint.identify(),
            "dtype": self._resolve_dtype(),
        }
        for name, other in others.items():
            found |= {f"{name}.{key}": value for key, value in other.identify().items()}
        if arguments.chat_template:
            found["chat_template"] = digest_text(read_template(arguments.chat_template))
        return {**found, **arguments.to_identity(), **self.backend.to_identity()}

    def _resolve_dtype(self) -> str:
        """Return the dtype of the weights; `auto` is the dtype in the config."""
        asked = self._arguments.dtype
        if asked != "auto" and self._checkpoint.model is None:
            return asked.removeprefix("torch.")
        config = self._checkpoint.config
        text = config.get("text_config") or {}
        found = next(
            (one[key] for one in (config, text) for key in ("dtype", "torch_dtype") if one.get(key)),
            "float32",
        )
        return str(found)

    def preview(self, request: Request) -> str:
        """Return the text that the model will read, with its chat template applied and media as placeholders."""
        _check_packages()
        return self.backend.preview(request)

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that exceeds the context length; unknown for multimodal models."""
        _check_packages()
        backend = self.backend
        return backend.preview_truncation(request) if isinstance(backend, TruncationPreviewBackend) else None

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens of the prompt that the model will read; unknown for multimodal models."""
        _check_packages()
        backend = self.backend
        return backend.count_input_tokens(request) if isinstance(backend, TruncationPreviewBackend) else None

    def prepare(self, part: Media) -> None:
        """Decode a medium in advance, in the form that the backend needs."""
        self.backend.prepare(part)

    async def open(self) -> None:
        """Load the weights."""
        _check_packages()
        if not self._threads:
            self._threads = [ThreadPoolExecutor(1, "hf-tokens"), ThreadPoolExecutor(1, "hf-model")]
            await asyncio.get_running_loop().run_in_executor(self._threads[1], self.backend.load)

    async def start_compute_meter(self) -> ComputeMeter | None:
        """Count what the model computes; None for multimodal checkpoints."""
        if not isinstance(self.backend, MeasurableBackend):
            return None
        return await asyncio.get_running_loop().run_in_executor(self._threads[1], self.backend.start_meter)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Tokenize in one thread, compute in another, and yield outcomes as they become available."""
        if not window:
            return
        if not self._threads:
            raise RuntimeError("answer() was called before open()")
        loop = asyncio.get_running_loop()
        tokens, model = self._threads
        encoded = await loop.run_in_executor(tokens, self.backend.encode, window)
        ready: deque[Outcome] = deque()
        abandoned = threading.Event()

        def compute() -> None:
            if self._first_pass_at is None:
                self._first_pass_at, self._setup_seconds = time.perf_counter(), self.backend.model_seconds

            for outcome in self.backend.answer(encoded):
                if abandoned.is_set():
                    return
                ready.append(outcome)
            self._last_pass_at = time.perf_counter()

        work = loop.run_in_executor(model, compute)
        try:
            is_done = False
            while not is_done:
                # polled, because waking the event loop for every outcome would slow down the model
                is_done = bool((await asyncio.wait([work], timeout=_POLL_INTERVAL_S))[0])
                while ready:
                    yield ready.popleft()
            await work
        finally:
            abandoned.set()
            if not work.done() and isinstance(self.backend, InterruptibleBackend):
                self.backend.interrupt()

    async def close(self) -> None:
        """Release the weights."""
        threads, self._threads = self._threads, []
        for thread in threads:
            await asyncio.to_thread(thread.shutdown, cancel_futures=True)
        if threads:
            self.backend.unload()

    @property
    def idle_share(self) -> float:
        """The share of the time since the first answer in which the model computed nothing."""
        if self._first_pass_at is None or self._last_pass_at <= self._first_pass_at:
            return 0.0
        busy = self.backend.model_seconds - self._setup_seconds  # without the prefix sharing check
        return max(0.0, 1 - busy / (self._last_pass_at - self._first_pass_at))


def _take_object(given: dict[str, Any], key: str, value: Any = None) -> Any:
    """Return a loaded model or tokenizer; put its name in the arguments, or leave the value there if it is a name."""
    value = given.get(key) if value is None else value
    if value is None or isinstance(value, (str, PathLike)):
        given[key] = value if value is None else str(value)
        return None
    given[key] = (getattr(value, "name_or_path", "") or type(value).__name__) if key == "pretrained" else None
    return value


def _check_loaded_model(model: Any, tokenizer: Any, arguments: HfArguments) -> None:
    """Raise InvalidOption if an object is not a model, has no tokenizer, or should have been loaded differently."""

    def make_error(what: str, hint: str) -> InvalidOption:
        return InvalidOption(what, where="pretrained", hint=hint)

    if not callable(getattr(model, "named_parameters", None)) or not hasattr(model, "config"):
        raise make_error(
            f"`pretrained` must be a name, a folder or a loaded model, not {type(model).__name__}",
            "a loaded model is a torch module with a `config`",
        )
    if tokenizer is None and not arguments.tokenizer and not getattr(model, "name_or_path", ""):
        raise make_error(
            "the loaded model has no tokenizer", "pass one: tokenizer=AutoTokenizer.from_pretrained(…)"
        )
    loading = [key for key in ("peft", "delta", "gguf_file") if getattr(arguments, key)] + [
        *arguments.loading
    ]
    if loading:
        raise make_error(
            f"`{loading[0]}` has no effect on a loaded model", "set it where the script loads the model"
        )


def _check_packages() -> None:
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingPackage.of(package, "the model `hf`", extra="hf", where="--model")
