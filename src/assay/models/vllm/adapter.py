"""`VllmModel`: a checkpoint in vLLM behind the `Model` port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import UnsupportedRequest
from assay.core.fingerprints import digest_text
from assay.core.messages import Media
from assay.core.ports import Ability, Traits
from assay.core.requests import Request
from assay.core.responses import Failure, Outcome
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import hears_only, senses_of
from assay.models.hf.loading.tokenizer import Vocabulary
from assay.models.vllm.arguments import read_arguments
from assay.models.vllm.engine import Engine, vllm_version

if TYPE_CHECKING:
    from assay.models.vllm.media import MediaPrompts
    from assay.models.vllm.request_processing import Answering, Habits

__all__ = ["VllmChatModel", "VllmGenerateModel", "VllmModel"]

_WINDOW, _IN_FLIGHT = 128, 4
"""vLLM batches by itself: it only wants many requests at hand, more than it computes at once."""

_REVISION = "1"
"""To be counted up when a change here changes answers, so that kept ones are not mixed with new ones."""


class VllmModel:
    """A checkpoint in vLLM: `pretrained` is a folder or a name on the hub.

    Whoever writes `model=` instead speaks lmms-eval's language and gets its habits: `vllm_chat` always has them.

    >>> VllmModel(pretrained="gpt2", tensor_parallel_size=2).name
    'gpt2'
    """

    _speaks_lmms = False
    _frames_are_pictures = True

    def __init__(
        self,
        *,
        pretrained: str = "",
        batch_size: int | str = 1,
        device: str | None = None,
        chat_template: str | None = None,
        **arguments: Any,
    ) -> None:
        given = {"chat_template": chat_template, **arguments}
        if pretrained:
            given["pretrained"] = pretrained
        self._arguments = read_arguments(given)
        self._lmms = self._speaks_lmms or not pretrained
        self._checkpoint = Checkpoint(self._arguments.pretrained, self._arguments.revision or "main")
        self._engine: Engine | None = None
        self._answering: Answering | None = None
        self._gives_tokens = False

    def give_tokens(self) -> None:
        """Every response brings its tokens from now on."""
        self._gives_tokens = True
        if self._answering is not None:
            self._answering.gives_tokens = True

    @property
    def name(self) -> str:
        """The name on the hub, or the last part of the folder's path."""
        return self._checkpoint.name

    @property
    def traits(self) -> Traits:
        """What the small files of the checkpoint say; nothing is loaded."""
        abilities: set[Ability] = {"generate", *self._senses}
        if (
            not self._arguments.enable_thinking
        ):  # thoughts would stand between the question and its continuation
            abilities |= {"likelihood", "rolling"}
        if self._arguments.chat_template or self._checkpoint.has_template:
            abilities.add("chat")
        return Traits(
            abilities=frozenset(abilities),
            system=self._checkpoint.takes_system(self._arguments.chat_template),
            answers_without_system=True,
            window=_WINDOW,
            in_flight=_IN_FLIGHT,
            tokens=True,
        )

    @cached_property
    def _senses(self) -> frozenset[Ability]:
        config = self._checkpoint.config
        if hears_only(config):
            raise UnsupportedRequest(
                f"`{self.name}` only writes down what is said; `vllm` is for models that read prompts",
                where="--model_args pretrained",
                hint=f"--model hf --model_args pretrained={self._checkpoint.source}",
            )
        return senses_of(config)

    async def identify(self) -> Mapping[str, str]:
        """What its answers depend on: the content of its files, vLLM's version, and the arguments that change answers."""
        version = vllm_version()
        files = await asyncio.to_thread(self._files)
        found = {"name": self.name, "engine": f"vllm {version}", "adapter": _REVISION, **files}
        if self._lmms:
            found["habits"] = "lmms-eval" if self._frames_are_pictures else "lmms-eval, videos as such"
        return {**found, "dtype": self._dtype(), **self._arguments.identity()}

    def _files(self) -> dict[str, str]:
        arguments = self._arguments
        found = dict(self._checkpoint.identify())
        others = {"tokenizer": arguments.tokenizer, "lora": arguments.lora_local_path}
        for name, source in others.items():
            if source:
                revision = (arguments.tokenizer_revision if name == "tokenizer" else None) or "main"
                other = Checkpoint(source, revision).identify()
                found |= {f"{name}.{key}": value for key, value in other.items()}
        if arguments.chat_template:
            found["chat_template"] = digest_text(_content(arguments.chat_template))
        return found

    def _dtype(self) -> str:
        """The numbers it computes with; `auto` is what the config says, float32 as half precision, as vLLM reads it."""
        asked = self._arguments.dtype
        if asked != "auto":
            return asked.removeprefix("torch.")
        config = self._checkpoint.config
        text = config.get("text_config") or {}
        said = [one[key] for one in (config, text) for key in ("dtype", "torch_dtype") if one.get(key)]
        return f"auto ({said[0] if said else 'unsaid'})"

    def preview(self, request: Request) -> str:
        """What the model will read, its chat template applied; media as the marks that stand for them."""
        media = self._media
        if media is not None and (request.prompt.chat or request.prompt.has_media):
            return media.text(request.prompt)
        return self._vocabulary.read(request.prompt)

    def prepare(self, part: Media) -> None:
        """Decode a medium as `answer` will want it."""
        if self._media is not None:
            self._media.prepare(part)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self._arguments.for_tokenizer(), self._checkpoint)

    @cached_property
    def _media(self) -> MediaPrompts | None:
        if not self._senses:
            return None
        from assay.models.vllm.media import MediaPrompts

        return MediaPrompts(
            self._arguments,
            self._checkpoint,
            self._senses,
            as_pictures=self._lmms and self._frames_are_pictures,
        )

    @property
    def _habits(self) -> Habits:
        from assay.models.vllm.request_processing import Habits

        return Habits(heeds_stops=False, least_tokens=4096, top_p=0.95) if self._lmms else Habits()

    async def open(self) -> None:
        """Load the weights and start the engine: a minute or two."""
        if self._engine is None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        from assay.models.vllm.request_processing import Answering

        arguments = self._arguments
        vllm_version()
        self._vocabulary.tokenizer  # noqa: B018 - a tokenizer that does not load is said before the engine starts
        media = self._media
        self._engine = Engine.start(arguments.for_engine(), lora_path=arguments.lora_local_path)
        self._answering = Answering(self._engine, self._vocabulary, arguments, media, self._habits)
        self._answering.gives_tokens = self._gives_tokens

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Everything goes to the engine at once; outcomes as they come."""
        answering = self._answering
        if answering is None:
            raise RuntimeError("answer() was called before open()")
        if not window:
            return
        tasks = []
        for job in await asyncio.to_thread(answering.arrange, window):
            if isinstance(job, Failure):
                yield job
            else:
                tasks.append(asyncio.create_task(answering.outcomes(job)))
        try:
            for done in asyncio.as_completed(tasks):
                for outcome in await done:
                    yield outcome
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """End the engine."""
        engine, self._engine, self._answering = self._engine, None, None
        if engine is not None:
            await engine.stop()


class VllmChatModel(VllmModel):
    """`vllm` with lmms-eval's habits: answers end where the model ends them, and are at most 4096 tokens long or more."""

    _speaks_lmms = True


class VllmGenerateModel(VllmChatModel):
    """`vllm_chat` that shows videos as videos, where the checkpoint knows what that is."""

    _frames_are_pictures = False


def _content(template: str) -> str:
    """What a template says: of a file its content, else its name or text."""
    try:
        path = Path(template)
        return path.read_text(encoding="utf-8") if path.is_file() else template
    except OSError:  # a text no file can be called
        return template
