"""`MultimodalBackend`: the backend of `HfModel` for checkpoints that read images, audio or video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from assay.core.ports import Ability
from assay.core.records.messages import Audio, Image, Media, Video
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Outcome
from assay.media import picture, waveform
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import find_media_abilities, is_speech_to_text, read_model_type
from assay.models.hf.loading.tokenizer import find_chat_template
from assay.models.hf.multimodal.batches import Batcher
from assay.models.hf.multimodal.engine import MultimodalEngine
from assay.models.hf.multimodal.loading import find_context_length, find_sampling_rate_hz, load_model
from assay.models.hf.multimodal.options import MediaOptions
from assay.models.hf.multimodal.processor import check_processor_settings, find_image_backend, load_processor
from assay.models.hf.multimodal.prompt_layout import MediaSettings, PromptLayout
from assay.models.hf.multimodal.request_processing import GenerationLimits, RequestProcessor
from assay.models.hf.multimodal.transcription import SpeechTranscriber
from assay.models.presets import DEFAULT_PRESET, ModelPreset
from assay.models.reasoning import ReasoningFormat, detect_format

__all__ = ["MultimodalBackend"]

_AUTO_BATCH_SIZE = 8
_DEFAULT_MAX_GEN_TOKS = 256
"""The default of `max_gen_toks`; if it is unchanged, the limit of the preset applies."""

_ENGINE_VERSION = "media 2"
"""Increase this when a code change alters answers, so that cached answers are not mixed with new ones."""


class MultimodalBackend:
    """Answers requests with images, audio and video, for every multimodal chat model of transformers."""

    window = 64

    def __init__(
        self,
        arguments: HfArguments,
        checkpoint: Checkpoint,
        options: MediaOptions | None = None,
        preset: ModelPreset = DEFAULT_PRESET,
    ) -> None:
        self._arguments = arguments
        self._checkpoint = checkpoint
        self._options = options or MediaOptions()
        self._preset = preset
        self._request_processor: RequestProcessor | SpeechTranscriber | None = None

    # --- available without loading -----------------------------------------------------------------

    @property
    def abilities(self) -> frozenset[Ability]:
        if self._is_speech:
            return frozenset({"generate", "chat", "audio"})
        base: set[Ability] = {"generate", "likelihood", "rolling", "chat"}
        if self._arguments.enable_thinking:  # the reasoning comes before the answer
            base.discard("likelihood")
        return frozenset(base | self._media_abilities)

    @property
    def needs(self) -> frozenset[Ability]:
        return frozenset({"audio"}) if self._is_speech else frozenset()

    @property
    def _is_speech(self) -> bool:
        return is_speech_to_text(self._checkpoint.config)

    @property
    def _media_abilities(self) -> frozenset[Ability]:
        return find_media_abilities(self._checkpoint.config)

    def to_identity(self) -> dict[str, str]:
        """Return what answers depend on besides the files and the shared arguments."""
        preset = self._preset
        found = {
            "engine": _ENGINE_VERSION,
            "frames": str(self._options.frames or preset.frames),
            "system_prompt": self._system_prompt,
            "templated": str(preset.uses_chat_template),
            "keeps_marks": str(preset.keeps_placeholders),
            "unheeded_stops": repr(sorted(preset.ignored_stops)),
            "max_new_tokens": str(self._max_new_tokens),
            "pictures": find_image_backend(),
        }
        options = MediaOptions(**{**_read_fields(self._options), "processor": self._processor_arguments})
        return {f"media.{key}": value for key, value in {**found, **options.to_identity()}.items()}

    @property
    def _system_prompt(self) -> str:
        own = self._options.system_prompt
        return self._preset.system_prompt if own is None else own

    @property
    def _max_new_tokens(self) -> int:
        asked = self._arguments.max_gen_toks
        return self._preset.max_new_tokens if asked == _DEFAULT_MAX_GEN_TOKS else asked

    @property
    def _processor_arguments(self) -> dict[str, Any]:
        return {**self._preset.processor_settings, **self._options.processor}

    # --- loading -----------------------------------------------------------------------------------

    @cached_property
    def _processor(self) -> Any:
        arguments = self._arguments
        processor = load_processor(
            arguments.pretrained,
            read_model_type(self._checkpoint.config),
            self._processor_arguments,
            revision=arguments.revision,
            trust_remote_code=arguments.trust_remote_code,
        )
        if not self._preset.ignores_unknown_settings:
            check_processor_settings(processor, self._options.processor, arguments.pretrained)
        if arguments.chat_template:
            processor.chat_template = find_chat_template(arguments.chat_template, processor.tokenizer)
        return processor

    @cached_property
    def _layout(self) -> PromptLayout:
        options, preset = self._options, self._preset
        processor = self._processor
        extractor = getattr(processor, "feature_extractor", None)
        settings = MediaSettings(
            frames=options.frames or preset.frames,
            fps=options.fps,
            rate_hz=find_sampling_rate_hz(processor),
            max_audio_samples=getattr(extractor, "n_samples", None),
            system_prompt=self._system_prompt,
            reasoning_prompt=options.reasoning_prompt,
            interleave=options.interleave,
            uses_chat_template=preset.uses_chat_template and not options.simple_prompt,
            keeps_placeholders=preset.keeps_placeholders,
            videos_as_frames=not hasattr(processor, "video_processor"),
            template_arguments=dict(self._arguments.template_arguments),
        )
        return PromptLayout(processor, self._media_abilities, settings)

    def load(self) -> None:
        model = load_model(self._arguments, self._checkpoint, self._processor.tokenizer)
        size = self._arguments.batch_size
        batch_size = size if isinstance(size, int) else _AUTO_BATCH_SIZE
        if self._is_speech:
            self._request_processor = self._make_transcriber(model, batch_size)
            return
        batcher = Batcher(
            self._processor,
            model,
            rate_hz=find_sampling_rate_hz(self._processor),
            max_length=find_context_length(self._arguments, model),
        )
        engine = MultimodalEngine(
            model,
            batcher,
            use_cache=self._options.use_cache,
            seed=self._arguments.seed,
            think_end=self._arguments.think_end_token or "",
            reasoning_format=self._find_reasoning_format(),
        )
        limits = GenerationLimits(
            batch_size=batch_size,
            max_new_tokens=self._max_new_tokens,
            ignored_stops=self._preset.ignored_stops,
        )
        self._request_processor = RequestProcessor(engine, batcher, self._layout, limits)

    def _find_reasoning_format(self) -> ReasoningFormat | None:
        """Return the marks around the reasoning of the model, if its chat template or its special tokens tell."""
        processor = self._processor
        own = getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None)
        text = own.get("default", "") if isinstance(own, dict) else own or ""
        return detect_format(text, map(str, getattr(processor.tokenizer, "get_added_vocab", dict)()))

    def _make_transcriber(self, model: Any, batch_size: int) -> SpeechTranscriber:
        options = self._options
        is_multilingual = bool(getattr(model.generation_config, "is_multilingual", False))
        return SpeechTranscriber(
            model,
            self._processor,
            batch_size=batch_size,
            max_new_tokens=self._max_new_tokens,
            language_arguments={"language": options.language, "task": options.task}
            if is_multilingual
            else {},
            normalize=self._preset.normalize if options.normalize is None else options.normalize,
        )

    def unload(self) -> None:
        self._request_processor = None

    def preview(self, request: Request) -> str:
        if self._is_speech:
            return "<audio>" * len(request.prompt.media)
        effort = request.settings.reasoning_effort if isinstance(request, Generate) else ""
        return self._layout.build_inputs(request.prompt, load=False, effort=effort).text

    def prepare(self, part: Media) -> None:
        """Decode a medium in the form that `answer` needs."""
        match part:
            case Image():
                picture(part)
            case Audio():
                waveform(part, rate_hz=find_sampling_rate_hz(self._processor))
            case Video():
                self._layout.load_clip(part)

    # --- answering ---------------------------------------------------------------------------------

    @property
    def model_seconds(self) -> float:
        return 0.0 if self._request_processor is None else self._request_processor.model_seconds

    def encode(self, window: Sequence[Request]) -> Sequence[Request]:
        """Return the window unchanged: the run prefetches decoded media, within its memory limit."""
        return window

    def answer(self, encoded: Sequence[Request]) -> Iterator[Outcome]:
        if self._request_processor is None:
            raise RuntimeError("answer() was called before load()")
        return self._request_processor.process(encoded)


def _read_fields(options: MediaOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}
