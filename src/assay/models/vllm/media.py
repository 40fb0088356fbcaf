"""Prompts with pictures, sounds and videos, as vLLM takes them: tokens with marks, and the decoded media beside them."""

from __future__ import annotations

from typing import Any

from assay.core.messages import Audio, Image, Media, Prompt, Video
from assay.core.ports import Ability
from assay.media import Clip, picture, waveform
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import model_type_of
from assay.models.hf.loading.tokenizer import template_text
from assay.models.hf.multimodal.loading import sampling_rate_hz
from assay.models.hf.multimodal.processor import load_processor
from assay.models.hf.multimodal.prompt_layout import Laid, Layout, MediaSettings, UnreadablePart
from assay.models.tokens import Unanswerable
from assay.models.vllm.arguments import VllmArguments

__all__ = ["MediaPrompts", "fitting_size"]


class MediaPrompts:
    """Lays prompts out with the checkpoint's own processor and chat template, as the transformers adapter does."""

    def __init__(
        self,
        arguments: VllmArguments,
        checkpoint: Checkpoint,
        senses: frozenset[Ability],
        *,
        as_pictures: bool = False,
    ) -> None:
        """`as_pictures`: videos become their frames, even where the checkpoint knows what a video is."""
        self._bounds = (arguments.image_width, arguments.image_height, arguments.image_max_side)
        processor = load_processor(
            arguments.pretrained,
            model_type_of(checkpoint.config),
            {},
            revision=arguments.revision or "main",
            trust_remote_code=arguments.trust_remote_code,
        )
        if arguments.chat_template:
            processor.chat_template = template_text(arguments.chat_template, processor.tokenizer)
        self._rate_hz = sampling_rate_hz(processor)
        settings = MediaSettings(
            frames=arguments.multimodal_frames,
            fps=arguments.fps,
            rate_hz=self._rate_hz,
            as_pictures=as_pictures or not hasattr(processor, "video_processor"),
            template_arguments=arguments.for_tokenizer().template_arguments,
        )
        self._layout = Layout(processor, senses, settings)

    def text(self, prompt: Prompt) -> str:
        """What the model reads, media as the marks that stand for them."""
        return self._laid(prompt, load=False).text

    def lay(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """That text, and the decoded media as vLLM names them.

        Raises:
            Unanswerable: The checkpoint has no sense for a part.
            MediaError: A part cannot be decoded.
        """
        laid = self._laid(prompt)
        found: dict[str, Any] = {}
        if laid.images:
            found["image"] = [self._fitted(one).convert("RGB") for one in laid.images]
        if laid.sounds:
            found["audio"] = [(one, self._rate_hz) for one in laid.sounds]
        if laid.clips:
            found["video"] = [_video(clip) for clip in laid.clips]
        return laid.text, found

    def _fitted(self, picture: Any) -> Any:
        size = fitting_size(picture.size, *self._bounds)
        return picture if size == picture.size else picture.resize(size)

    def _laid(self, prompt: Prompt, *, load: bool = True) -> Laid:
        try:
            return self._layout.lay(prompt, load=load)
        except UnreadablePart as error:
            raise Unanswerable(str(error)) from None

    def prepare(self, part: Media) -> None:
        """Decode a medium as `lay` will want it."""
        match part:
            case Image():
                picture(part)
            case Audio():
                waveform(part, rate_hz=self._rate_hz)
            case Video():
                self._layout.clip(part)


def fitting_size(
    size: tuple[int, int], width: int | None, height: int | None, longest: int | None
) -> tuple[int, int]:
    """The size of a picture made to fit, its shape kept. Nothing grows; lm-eval's rounding.

    >>> fitting_size((640, 480), 320, None, None), fitting_size((640, 480), None, None, 100)
    ((320, 240), (100, 75))
    """
    wide, high = size
    if longest is not None:
        width, height = (longest, None) if wide > high else (None, longest)
    if wide <= (width or wide) and high <= (height or high):
        return size
    if width and height:
        ratio = min(width / wide, height / high)
        made = int(wide * ratio), int(high * ratio)
    elif width:
        made = width, int(high / wide * width)
    else:
        made = int(wide / high * (height or high)), height or high
    return max(1, made[0]), max(1, made[1])


def _video(clip: Clip) -> Any:
    """Frames as one array, and when they are shown: some processors write the times into the prompt."""
    import numpy

    frames = numpy.stack([numpy.asarray(one.convert("RGB")) for one in clip.frames])
    times = clip.times_s
    span = times[-1] - times[0] if len(times) > 1 else 0.0
    fps = (len(times) - 1) / span if span > 0 else 1.0
    facts = {
        "total_num_frames": len(frames),
        "fps": fps,
        "duration": len(frames) / fps,
        "video_backend": "assay",
        "frames_indices": list(range(len(frames))),
        "do_sample_frames": False,
    }
    return frames, facts
