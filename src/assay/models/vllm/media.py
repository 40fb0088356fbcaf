"""Prompts with images, audio and video for vLLM: text with placeholders, and the decoded media."""

from __future__ import annotations

from typing import Any

from assay.core.ports import Ability
from assay.core.records.messages import Audio, Image, Media, Prompt, Video
from assay.media import Clip, picture, waveform
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import read_model_type
from assay.models.hf.loading.tokenizer import find_chat_template
from assay.models.hf.multimodal.loading import find_sampling_rate_hz
from assay.models.hf.multimodal.processor import load_processor
from assay.models.hf.multimodal.prompt_layout import (
    MediaSettings,
    PromptInputs,
    PromptLayout,
    UnsupportedMedia,
)
from assay.models.tokens import Unanswerable
from assay.models.vllm.arguments import VllmArguments

__all__ = ["MediaPromptRenderer", "fit_size"]


class MediaPromptRenderer:
    """Renders prompts with the checkpoint's processor and chat template, like the `hf` adapter."""

    def __init__(
        self,
        arguments: VllmArguments,
        checkpoint: Checkpoint,
        media_abilities: frozenset[Ability],
        *,
        videos_as_frames: bool = False,
    ) -> None:
        """`videos_as_frames`: convert videos to frames even if the checkpoint reads videos."""
        self._image_limits = (arguments.image_width, arguments.image_height, arguments.image_max_side)
        processor = load_processor(
            arguments.pretrained,
            read_model_type(checkpoint.config),
            {},
            revision=arguments.revision or "main",
            trust_remote_code=arguments.trust_remote_code,
        )
        if arguments.chat_template:
            processor.chat_template = find_chat_template(arguments.chat_template, processor.tokenizer)
        self._rate_hz = find_sampling_rate_hz(processor)
        settings = MediaSettings(
            frames=arguments.multimodal_frames,
            fps=arguments.fps,
            rate_hz=self._rate_hz,
            videos_as_frames=videos_as_frames or not hasattr(processor, "video_processor"),
            template_arguments=arguments.to_tokenizer_arguments().template_arguments,
        )
        self._layout = PromptLayout(processor, media_abilities, settings)

    def render_text(self, prompt: Prompt, effort: str = "") -> str:
        """Return the text that the model reads, with media as placeholders. `effort`: that of its reasoning."""
        return self._build_prompt_inputs(prompt, effort, load=False).text

    def build_inputs(self, prompt: Prompt, effort: str = "") -> tuple[str, dict[str, Any]]:
        """Return the text and the decoded media under vLLM's names.

        Raises:
            Unanswerable: The checkpoint does not read a medium.
            MediaError: A medium cannot be decoded.
        """
        inputs = self._build_prompt_inputs(prompt, effort)
        found: dict[str, Any] = {}
        if inputs.images:
            found["image"] = [self._resize(one).convert("RGB") for one in inputs.images]
        if inputs.audios:
            found["audio"] = [(one, self._rate_hz) for one in inputs.audios]
        if inputs.clips:
            found["video"] = [_to_video_input(clip) for clip in inputs.clips]
        return inputs.text, found

    def _resize(self, image: Any) -> Any:
        size = fit_size(image.size, *self._image_limits)
        return image if size == image.size else image.resize(size)

    def _build_prompt_inputs(self, prompt: Prompt, effort: str, *, load: bool = True) -> PromptInputs:
        try:
            return self._layout.build_inputs(prompt, load=load, effort=effort)
        except UnsupportedMedia as error:
            raise Unanswerable(str(error)) from None

    def prepare(self, part: Media) -> None:
        """Decode a medium in the form that `build_inputs` needs."""
        match part:
            case Image():
                picture(part)
            case Audio():
                waveform(part, rate_hz=self._rate_hz)
            case Video():
                self._layout.load_clip(part)


def fit_size(
    size: tuple[int, int], width: int | None, height: int | None, longest: int | None
) -> tuple[int, int]:
    """Return the size of an image shrunk to fit, with its aspect ratio and lm-eval's rounding. Never enlarges.

    >>> fit_size((640, 480), 320, None, None), fit_size((640, 480), None, None, 100)
    ((320, 240), (100, 75))
    """
    wide, high = size
    if longest is not None:
        width, height = (longest, None) if wide > high else (None, longest)
    if wide <= (width or wide) and high <= (height or high):
        return size
    if width and height:
        ratio = min(width / wide, height / high)
        new_size = int(wide * ratio), int(high * ratio)
    elif width:
        new_size = width, int(high / wide * width)
    else:
        new_size = int(wide / high * (height or high)), height or high
    return max(1, new_size[0]), max(1, new_size[1])


def _to_video_input(clip: Clip) -> Any:
    """Return the frames as one array, and their times, which some processors add to the prompt."""
    import numpy

    frames = numpy.stack([numpy.asarray(one.convert("RGB")) for one in clip.frames])
    times = clip.times_s
    span = times[-1] - times[0] if len(times) > 1 else 0.0
    fps = (len(times) - 1) / span if span > 0 else 1.0
    metadata = {
        "total_num_frames": len(frames),
        "fps": fps,
        "duration": len(frames) / fps,
        "video_backend": "assay",
        "frames_indices": list(range(len(frames))),
        "do_sample_frames": False,
    }
    return frames, metadata
