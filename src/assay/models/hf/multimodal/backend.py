"""`MultimodalBackend`: what `HfModel` hands requests to when a checkpoint sees or hears."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from assay.core.messages import Audio, Image, Media, Video
from assay.core.ports import Ability
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.media import picture, waveform
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import hears_only, model_type_of, senses_of
from assay.models.hf.loading.tokenizer import template_text
from assay.models.hf.multimodal.batches import Batcher
from assay.models.hf.multimodal.engine import Engine
from assay.models.hf.multimodal.loading import context_length, load_model, sampling_rate_hz
from assay.models.hf.multimodal.options import MediaOptions
from assay.models.hf.multimodal.processor import backend, check_arguments, load_processor
from assay.models.hf.multimodal.prompt_layout import Layout, MediaSettings
from assay.models.hf.multimodal.request_processing import Answering, Limits
from assay.models.hf.multimodal.transcription import Speech
from assay.models.presets import OWN, Habits

__all__ = ["MultimodalBackend"]

_AUTO_BATCH = 8
_LM_EVAL_LENGTH = 256
"""`max_gen_toks` where nobody says otherwise; then the name's own length counts."""

_ENGINE = "media 2"
"""To be counted up when a change here changes answers, so that kept ones are not mixed with new ones."""


class MultimodalBackend:
    """Pictures, sounds and videos beside text, for every architecture that transformers can chat with."""

    window = 64

    def __init__(
        self,
        arguments: HfArguments,
        checkpoint: Checkpoint,
        options: MediaOptions | None = None,
        habits: Habits = OWN,
    ) -> None:
        self._arguments = arguments
        self._checkpoint = checkpoint
        self._options = options or MediaOptions()
        self._habits = habits
        self._answering: Answering | Speech | None = None

    # --- what is known without loading -------------------------------------------------------------

    @property
    def abilities(self) -> frozenset[Ability]:
        if self._is_speech:
            return frozenset({"generate", "chat", "audio"})
        base: set[Ability] = {"generate", "likelihood", "rolling", "chat"}
        if self._arguments.enable_thinking:  # what comes first is no answer yet
            base.discard("likelihood")
        return frozenset(base | self._senses)

    @property
    def needs(self) -> frozenset[Ability]:
        return frozenset({"audio"}) if self._is_speech else frozenset()

    @property
    def _is_speech(self) -> bool:
        return hears_only(self._checkpoint.config)

    @property
    def _senses(self) -> frozenset[Ability]:
        return senses_of(self._checkpoint.config)

    def identity(self) -> dict[str, str]:
        """What answers depend on beside the files and the common arguments."""
        habits = self._habits
        found = {
            "engine": _ENGINE,
            "frames": str(self._options.frames or habits.frames),
            "system_prompt": self._system_prompt,
            "templated": str(habits.templated),
            "keeps_marks": str(habits.keeps_marks),
            "unheeded_stops": repr(sorted(habits.unheeded_stops)),
            "max_new_tokens": str(self._max_new_tokens),
            "pictures": backend(),
        }
        options = MediaOptions(**{**_fields(self._options), "processor": self._processor_arguments})
        return {f"media.{key}": value for key, value in {**found, **options.identity()}.items()}

    @property
    def _system_prompt(self) -> str:
        own = self._options.system_prompt
        return self._habits.system_prompt if own is None else own

    @property
    def _max_new_tokens(self) -> int:
        asked = self._arguments.max_gen_toks
        return self._habits.max_new_tokens if asked == _LM_EVAL_LENGTH else asked

    @property
    def _processor_arguments(self) -> dict[str, Any]:
        return {**self._habits.arguments, **self._options.processor}

    # --- loading -----------------------------------------------------------------------------------

    @cached_property
    def _processor(self) -> Any:
        arguments = self._arguments
        made = load_processor(
            arguments.pretrained,
            model_type_of(self._checkpoint.config),
            self._processor_arguments,
            revision=arguments.revision,
            trust_remote_code=arguments.trust_remote_code,
        )
        if not self._habits.lenient:
            check_arguments(made, self._options.processor, arguments.pretrained)
        if arguments.chat_template:
            made.chat_template = template_text(arguments.chat_template, made.tokenizer)
        return made

    @cached_property
    def _layout(self) -> Layout:
        options, habits = self._options, self._habits
        processor = self._processor
        extractor = getattr(processor, "feature_extractor", None)
        settings = MediaSettings(
            frames=options.frames or habits.frames,
            fps=options.fps,
            rate_hz=sampling_rate_hz(processor),
            longest_sound=getattr(extractor, "n_samples", None),
            system_prompt=self._system_prompt,
            reasoning_prompt=options.reasoning_prompt,
            interleave=options.interleave,
            templated=habits.templated and not options.simple_prompt,
            keeps_marks=habits.keeps_marks,
            as_pictures=not hasattr(processor, "video_processor"),
            template_arguments=dict(self._arguments.template_arguments),
        )
        return Layout(processor, self._senses, settings)

    def load(self) -> None:
        model = load_model(self._arguments, self._checkpoint, self._processor.tokenizer)
        size = self._arguments.batch_size
        batch_size = size if isinstance(size, int) else _AUTO_BATCH
        if self._is_speech:
            self._answering = self._speech(model, batch_size)
            return
        batcher = Batcher(
            self._processor,
            model,
            rate_hz=sampling_rate_hz(self._processor),
            max_length=context_length(self._arguments, model),
        )
        engine = Engine(
            model,
            batcher,
            use_cache=self._options.use_cache,
            seed=self._arguments.seed,
            think_end=self._arguments.think_end_token or "",
        )
        limits = Limits(
            batch_size=batch_size,
            max_new_tokens=self._max_new_tokens,
            unheeded_stops=self._habits.unheeded_stops,
        )
        self._answering = Answering(engine, batcher, self._layout, limits)

    def _speech(self, model: Any, batch_size: int) -> Speech:
        options = self._options
        many = bool(getattr(model.generation_config, "is_multilingual", False))
        return Speech(
            model,
            self._processor,
            batch_size=batch_size,
            max_new_tokens=self._max_new_tokens,
            spoken={"language": options.language, "task": options.task} if many else {},
            normalize=self._habits.normalize if options.normalize is None else options.normalize,
        )

    def unload(self) -> None:
        self._answering = None

    def preview(self, request: Request) -> str:
        if self._is_speech:
            return "<audio>" * len(request.prompt.media)
        return self._layout.lay(request.prompt, load=False).text

    def prepare(self, part: Media) -> None:
        """Decode a medium as `answer` will want it."""
        match part:
            case Image():
                picture(part)
            case Audio():
                waveform(part, rate_hz=sampling_rate_hz(self._processor))
            case Video():
                self._layout.clip(part)

    # --- answering ---------------------------------------------------------------------------------

    @property
    def model_seconds(self) -> float:
        return 0.0 if self._answering is None else self._answering.model_seconds

    def encode(self, window: Sequence[Request]) -> Sequence[Request]:
        """Nothing ahead: decoded media are large, and the engine of a run decodes them ahead within its budget."""
        return window

    def answer(self, encoded: Sequence[Request]) -> Iterator[Outcome]:
        if self._answering is None:
            raise RuntimeError("answer() was called before load()")
        return self._answering.outcomes(encoded)


def _fields(options: MediaOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}
