"""`VllmModel`: a checkpoint in vLLM behind the `Model` port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.core.errors import UnsupportedRequest
from assay.core.fingerprints import digest_text
from assay.core.ports import Ability, Traits
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import find_media_abilities, is_speech_to_text
from assay.models.hf.loading.tokenizer import CheckpointTokenizer, read_template
from assay.models.tool_calls import supports_tools
from assay.models.vllm.arguments import parse_arguments
from assay.models.vllm.engine import VllmEngine, vllm_version

if TYPE_CHECKING:
    from assay.models.vllm.media import MediaPromptRenderer
    from assay.models.vllm.request_processing import GenerationPreset, RequestProcessor

__all__ = ["VllmChatModel", "VllmGenerateModel", "VllmModel"]

_WINDOW, _IN_FLIGHT = 128, 4
"""vLLM batches by itself and needs more requests than it computes at once."""

_ADAPTER_VERSION = "1"
"""Increase this when a code change alters answers, so that cached answers are not mixed with new ones."""


class VllmModel:
    """A checkpoint in vLLM: `pretrained` is a folder or a name on the hub.

    With the argument `model` instead of `pretrained`, the defaults of lmms-eval apply; `vllm_chat` always uses them.

    >>> VllmModel(pretrained="gpt2", tensor_parallel_size=2).name
    'gpt2'
    """

    _follows_lmms_eval = False
    _videos_as_frames = True

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
        self._arguments = parse_arguments(given)
        self._uses_lmms_eval_preset = self._follows_lmms_eval or not pretrained
        self._checkpoint = Checkpoint(self._arguments.pretrained, self._arguments.revision or "main")
        self._engine: VllmEngine | None = None
        self._processor: RequestProcessor | None = None
        self._reports_tokens = False

    def give_tokens(self) -> None:
        """Include tokens and their log probabilities in every response."""
        self._reports_tokens = True
        if self._processor is not None:
            self._processor.reports_tokens = True

    @property
    def name(self) -> str:
        """The name on the hub, or the last part of the folder's path."""
        return self._checkpoint.name

    @property
    def traits(self) -> Traits:
        """Read from the small files of the checkpoint; no weights are loaded."""
        abilities: set[Ability] = {"generate", *self._media_abilities}
        if (
            not self._arguments.enable_thinking
        ):  # reasoning would come between the prompt and its continuation
            abilities |= {"likelihood", "rolling"}
        if self._arguments.chat_template or self._checkpoint.has_chat_template:
            abilities.add("chat")
        template = self._checkpoint.find_template(self._arguments.chat_template, tools=True)
        if not self._media_abilities and supports_tools(template):
            abilities.add("tools")
        return Traits(
            abilities=frozenset(abilities),
            system=self._checkpoint.supports_system_message(self._arguments.chat_template),
            answers_without_system=True,
            window=_WINDOW,
            in_flight=_IN_FLIGHT,
            tokens=True,
        )

    @cached_property
    def _media_abilities(self) -> frozenset[Ability]:
        config = self._checkpoint.config
        if is_speech_to_text(config):
            raise UnsupportedRequest(
                f"`{self.name}` only transcribes speech; `vllm` needs a model that reads prompts",
                where="--model_args pretrained",
                hint=f"--model hf --model_args pretrained={self._checkpoint.source}",
            )
        return find_media_abilities(config)

    async def identify(self) -> Mapping[str, str]:
        """Return what answers depend on: the model files, the version of vLLM, and arguments that change answers."""
        version = vllm_version()
        files = await asyncio.to_thread(self.identify_files)
        found = {"name": self.name, "engine": f"vllm {version}", "adapter": _ADAPTER_VERSION, **files}
        if self._uses_lmms_eval_preset:
            found["habits"] = "lmms-eval" if self._videos_as_frames else "lmms-eval, videos as such"
        return {**found, "dtype": self.describe_dtype(), **self._arguments.to_identity()}

    def identify_files(self) -> dict[str, str]:
        arguments = self._arguments
        found = dict(self._checkpoint.identify())
        others = {"tokenizer": arguments.tokenizer, "lora": arguments.lora_local_path}
        for name, source in others.items():
            if source:
                revision = (arguments.tokenizer_revision if name == "tokenizer" else None) or "main"
                other = Checkpoint(source, revision).identify()
                found |= {f"{name}.{key}": value for key, value in other.items()}
        if arguments.chat_template:
            found["chat_template"] = digest_text(read_template(arguments.chat_template))
        return found

    def describe_dtype(self) -> str:
        """Return the dtype. `auto` is the dtype in the config, where vLLM replaces float32 with half precision."""
        asked = self._arguments.dtype
        if asked != "auto":
            return asked.removeprefix("torch.")
        config = self._checkpoint.config
        text = config.get("text_config") or {}
        found = [one[key] for one in (config, text) for key in ("dtype", "torch_dtype") if one.get(key)]
        return f"auto ({found[0] if found else 'unsaid'})"

    def preview(self, request: Request) -> str:
        """Return the text that the model will read, with its chat template applied and media as placeholders."""
        media = self._media
        if media is not None and (request.prompt.chat or request.prompt.has_media):
            effort = request.settings.reasoning_effort if isinstance(request, Generate) else ""
            return media.render_text(request.prompt, effort)
        return self._tokenizer.render_request(request)

    def prepare(self, part: Media) -> None:
        """Decode a medium in the form that `answer` needs."""
        if self._media is not None:
            self._media.prepare(part)

    @cached_property
    def _tokenizer(self) -> CheckpointTokenizer:
        return CheckpointTokenizer(self._arguments.to_tokenizer_arguments(), self._checkpoint)

    @cached_property
    def _media(self) -> MediaPromptRenderer | None:
        if not self._media_abilities:
            return None
        from assay.models.vllm.media import MediaPromptRenderer

        return MediaPromptRenderer(
            self._arguments,
            self._checkpoint,
            self._media_abilities,
            videos_as_frames=self._uses_lmms_eval_preset and self._videos_as_frames,
        )

    @property
    def _preset(self) -> GenerationPreset:
        from assay.models.vllm.request_processing import GenerationPreset

        return (
            GenerationPreset(uses_stops=False, min_token_limit=4096, top_p=0.95)
            if self._uses_lmms_eval_preset
            else GenerationPreset()
        )

    async def open(self) -> None:
        """Load the weights and start the engine, which takes a minute or two."""
        if self._engine is None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        from assay.models.vllm.request_processing import RequestProcessor

        arguments = self._arguments
        vllm_version()
        self._tokenizer.tokenizer  # noqa: B018 - fail before the engine starts if the tokenizer does not load
        media = self._media
        self._engine = VllmEngine.start(arguments.to_engine_arguments(), lora_path=arguments.lora_local_path)
        self._processor = RequestProcessor(self._engine, self._tokenizer, arguments, media, self._preset)
        self._processor.reports_tokens = self._reports_tokens

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Send all requests to the engine and yield outcomes as they become available."""
        processor = self._processor
        if processor is None:
            raise RuntimeError("answer() was called before open()")
        if not window:
            return
        tasks = []
        for job in await asyncio.to_thread(processor.plan_jobs, window):
            if isinstance(job, Failure):
                yield job
            else:
                tasks.append(asyncio.create_task(processor.run_job(job)))
        try:
            for done in asyncio.as_completed(tasks):
                for outcome in await done:
                    yield outcome
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop the engine."""
        engine, self._engine, self._processor = self._engine, None, None
        if engine is not None:
            await engine.stop()


class VllmChatModel(VllmModel):
    """`vllm` with the defaults of lmms-eval: no stop strings, and a token limit of at least 4096."""

    _follows_lmms_eval = True


class VllmGenerateModel(VllmChatModel):
    """`vllm_chat` with videos as videos, not as frames, if the checkpoint reads videos."""

    _videos_as_frames = False
