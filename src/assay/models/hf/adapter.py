"""`HfModel`: a transformers checkpoint behind the `Model` port.

The checkpoint decides which backend answers: text, or text with pictures and sounds. Tokens are made in one thread and
the model computes in another; with two windows in flight the model finds the next one ready.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.fingerprints import digest_text
from assay.core.messages import Media
from assay.core.ports import Traits
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.models.hf.arguments import read_arguments
from assay.models.hf.backend import Backend, Halts, TellsTokens
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.multimodal.options import MediaOptions, take_media_options
from assay.models.presets import OWN, Habits

__all__ = ["HfModel"]

_WINDOW = 512
"""Requests per window: enough that a few-shot prefix shared by a hundred documents costs little, few enough that a window
takes seconds to minutes."""

_GLANCE_S = 0.05
"""How long an outcome may lie before it is handed on."""

_ENGINE = "tokens 1"
"""To be counted up when a change here changes answers, so that kept ones are not mixed with new ones."""


class HfModel:
    """A model in the format of transformers: `pretrained` is a folder or a name on the hub.

    >>> HfModel(pretrained="gpt2", dtype="float32").name
    'gpt2'
    """

    habits: ClassVar[Habits] = OWN
    called: ClassVar[str] = "hf"

    def __init__(
        self,
        *,
        pretrained: str = "",
        batch_size: int | str = 1,
        device: str | None = None,
        chat_template: str | None = None,
        **arguments: Any,
    ) -> None:
        given = {"batch_size": batch_size, "device": device, "chat_template": chat_template, **arguments}
        given["pretrained"] = pretrained or arguments.get("model", "") or self.habits.pretrained
        given.pop("model", None)
        self._media, given = take_media_options(given, self.called)
        self._arguments = read_arguments(given, name=self.called)
        self._checkpoint = Checkpoint(
            self._arguments.pretrained, self._arguments.revision, self._arguments.subfolder
        )
        self._threads: list[ThreadPoolExecutor] = []
        self._started: float | None = None
        self._ended = self._tried = 0.0

    @property
    def name(self) -> str:
        """The name on the hub, or the last part of the folder's path."""
        return self._checkpoint.name

    @property
    def traits(self) -> Traits:
        """What the small files of the checkpoint say; nothing is loaded."""
        backend = self._backend
        window = min(backend.window, _WINDOW)
        return Traits(
            abilities=backend.abilities,
            needs=backend.needs,
            system=self._checkpoint.takes_system(self._arguments.chat_template),
            answers_without_system=True,
            window=window,
            in_flight=2,
            tokens=isinstance(backend, TellsTokens),
        )

    def give_tokens(self) -> None:
        """Every response brings its tokens, where the kind of model is one that tells them."""
        if isinstance(self._backend, TellsTokens):
            self._backend.gives_tokens = True

    @cached_property
    def _backend(self) -> Backend:
        wants = self._arguments.backend
        kind = self._checkpoint.kind if wants == "default" else wants
        if kind == "multimodal":
            from assay.models.hf.multimodal import MultimodalBackend

            return MultimodalBackend(self._arguments, self._checkpoint, self._media, self.habits)
        if self._media != MediaOptions():
            names = ", ".join(f"`{name}`" for name in self._media.identity()) or "`use_cache`"
            raise InvalidOption(
                f"`{self.name}` reads text alone: {names} has no meaning for it", where="--model_args"
            )
        from assay.models.hf.text.backend import TextBackend

        return TextBackend(self._arguments, self._checkpoint)

    async def identify(self) -> Mapping[str, str]:
        """What its answers depend on: the content of its files, and the arguments that change answers.

        Not in it: where it runs and how much it computes at once, which change the last bits only; where the files lie;
        and the versions of torch and transformers, which the manifest of a run has.
        """
        _check_packages()
        return await asyncio.to_thread(self._identity)

    def _identity(self) -> dict[str, str]:
        arguments, checkpoint = self._arguments, self._checkpoint
        others = {
            name: Checkpoint(source, arguments.revision)
            for name in ("tokenizer", "peft", "delta")
            if (source := getattr(arguments, name))
        }
        found = {"name": self.name, "engine": _ENGINE, **checkpoint.identify(), "dtype": self._dtype()}
        for name, other in others.items():
            found |= {f"{name}.{key}": value for key, value in other.identify().items()}
        if arguments.chat_template:
            found["chat_template"] = digest_text(_content(arguments.chat_template))
        return {**found, **arguments.identity(), **self._backend.identity()}

    def _dtype(self) -> str:
        """The numbers it computes with; `auto` is what the config says."""
        asked = self._arguments.dtype
        if asked != "auto":
            return asked.removeprefix("torch.")
        config = self._checkpoint.config
        text = config.get("text_config") or {}
        said = next(
            (one[key] for one in (config, text) for key in ("dtype", "torch_dtype") if one.get(key)),
            "float32",
        )
        return str(said)

    def preview(self, request: Request) -> str:
        """What the model will read, its chat template applied; media as placeholders."""
        _check_packages()
        return self._backend.preview(request)

    def prepare(self, part: Media) -> None:
        """Decode a medium ahead of its turn, as the backend will want it."""
        self._backend.prepare(part)

    async def open(self) -> None:
        """Load the weights."""
        _check_packages()
        if not self._threads:
            self._threads = [ThreadPoolExecutor(1, "hf-tokens"), ThreadPoolExecutor(1, "hf-model")]
            await asyncio.get_running_loop().run_in_executor(self._threads[1], self._backend.load)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Tokens in one thread, the model in another; outcomes as they come."""
        if not window:
            return
        if not self._threads:
            raise RuntimeError("answer() was called before open()")
        loop = asyncio.get_running_loop()
        tokens, model = self._threads
        encoded = await loop.run_in_executor(tokens, self._backend.encode, window)
        ready: deque[Outcome] = deque()
        left = threading.Event()

        def compute() -> None:
            if self._started is None:
                self._started, self._tried = time.perf_counter(), self._backend.model_seconds
            for outcome in self._backend.answer(encoded):
                if left.is_set():
                    return
                ready.append(outcome)
            self._ended = time.perf_counter()

        work = loop.run_in_executor(model, compute)
        try:
            is_done = False
            while not is_done:
                # looked at now and then: waking this loop for every outcome would make the model wait for it
                is_done = bool((await asyncio.wait([work], timeout=_GLANCE_S))[0])
                while ready:
                    yield ready.popleft()
            await work
        finally:
            left.set()
            if not work.done() and isinstance(self._backend, Halts):
                self._backend.halt()

    async def close(self) -> None:
        """Forget the weights."""
        threads, self._threads = self._threads, []
        for thread in threads:
            await asyncio.to_thread(thread.shutdown, cancel_futures=True)
        if threads:
            self._backend.unload()

    @property
    def waited_share(self) -> float:
        """The share of the time since the first answer that nothing was computed: the model waited for Python."""
        if self._started is None or self._ended <= self._started:
            return 0.0
        busy = self._backend.model_seconds - self._tried  # without what was tried while it was opened
        return max(0.0, 1 - busy / (self._ended - self._started))


def _check_packages() -> None:
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingPackage.of(package, "the model `hf`", extra="hf", where="--model")


def _content(template: str) -> str:
    """What a template says: of a file its content, else its name or text."""
    try:
        path = Path(template)
        return path.read_text(encoding="utf-8") if path.is_file() else template
    except OSError:  # a text no file can be called
        return template
