"""Prompts as one batch of tensors, padded at the left: texts by their tokens, prompts with media by the processor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.media import Clip
from assay.models.hf.multimodal.prompt_layout import Laid
from assay.models.tokens import TextEncoder, Unanswerable

__all__ = ["Batch", "Batcher"]

_TICKS_PER_S = 1000
"""Frames are told to a processor by number and rate; thousandths of a second say when each is shown, whatever its file's rate."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors a model takes, one row per prompt."""

    inputs: dict[str, Any]
    lengths: tuple[int, ...]
    """Tokens of each row, padding left out."""

    has_media: bool


class Batcher:
    """Makes batches for one checkpoint."""

    def __init__(self, processor: Any, model: Any, *, rate_hz: int, max_length: int) -> None:
        self._processor = processor
        self._model = model
        self._rate_hz = rate_hz
        self.max_length = max_length
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.tokenizer.padding_side = "left"
        self._takes = inspect.signature(model.forward).parameters
        start = self.tokenizer.bos_token_id
        self.encoder = TextEncoder(
            encode=self._encode,
            prefix_token=self.tokenizer.eos_token_id if start is None else start,
            prefix_text=self.tokenizer.bos_token or "",
        )

    def _encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        found: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=special)["input_ids"]
        return found

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self._model.device

    @property
    def pad_id(self) -> int:
        """What fills up short rows; masked, so any token does."""
        pad = self.tokenizer.pad_token_id
        return int(self.encoder.prefix_token if pad is None else pad)

    def of_tokens(self, rows: Sequence[Sequence[int]]) -> Batch:
        """A batch of texts."""
        import torch

        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, width - len(row) :] = torch.tensor(row, dtype=torch.long)
            mask[at, width - len(row) :] = 1
        inputs = {"input_ids": ids.to(self._model.device), "attention_mask": mask.to(self._model.device)}
        return Batch(inputs, tuple(len(row) for row in rows), False)

    def of_media(self, rows: Sequence[Laid]) -> Batch:
        """A batch of prompts with media, alike in which kinds they have and in how they begin.

        Raises:
            Unanswerable: A prompt does not fit into the model; what would have to go might be a picture.
            ValueError: The processor does not get along with a medium.
        """
        words: dict[str, Any] = {"text": [row.text for row in rows], "padding": True, "return_tensors": "pt"}
        if self.is_begun(rows[0]):
            words["add_special_tokens"] = False
        if rows[0].images:
            words["images"] = [list(row.images) for row in rows]
        if rows[0].clips:
            words["videos"] = [[list(clip.frames) for clip in row.clips] for row in rows]
            words["video_metadata"] = [[_metadata(clip) for clip in row.clips] for row in rows]
            words["do_sample_frames"] = False
        if rows[0].sounds:
            words["audio"] = [sound for row in rows for sound in row.sounds]
            words["sampling_rate"] = self._rate_hz
        made = self._processor(**words)
        inputs = {key: self._placed(value) for key, value in made.items() if self._wanted(key, value)}
        lengths = tuple(inputs["attention_mask"].sum(dim=1).tolist())
        if max(lengths) >= self.max_length:
            raise Unanswerable(
                f"the prompt has {max(lengths)} tokens, media included; the model holds {self.max_length}"
            )
        return Batch(inputs, lengths, True)

    def is_begun(self, row: Laid) -> bool:
        """Whether a template wrote the start token already. Prompts of which some are and some are not share no batch."""
        return bool(self.encoder.prefix_text) and row.text.startswith(self.encoder.prefix_text)

    def _wanted(self, key: str, value: Any) -> bool:
        known = key in self._takes or any(one.kind is one.VAR_KEYWORD for one in self._takes.values())
        return known and value is not None

    def _placed(self, value: Any) -> Any:
        """On the model's device, numbers with a fraction in its precision."""
        if isinstance(value, (list, tuple)):
            return [self._placed(one) for one in value]
        if not hasattr(value, "to"):
            return value
        dtype = self._model.dtype if value.is_floating_point() else value.dtype
        return value.to(self._model.device, dtype)

    def takes(self, name: str) -> bool:
        """Whether the model's forward has a parameter of this name."""
        return name in self._takes


def _metadata(clip: Clip) -> Any:
    from transformers.video_utils import VideoMetadata

    ticks = [round(time * _TICKS_PER_S) for time in clip.times_s]
    spacing = (ticks[-1] - ticks[0]) / (len(ticks) - 1) if len(ticks) > 1 else _TICKS_PER_S
    width, height = clip.frames[0].size
    total = max(round(ticks[-1] - ticks[0] + spacing), 1)
    return VideoMetadata(
        total_num_frames=total,
        fps=float(_TICKS_PER_S),
        width=width,
        height=height,
        duration=total / _TICKS_PER_S,
        frames_indices=ticks,
    )


def rows_like(inputs: Mapping[str, Any], ids: Any, mask: Any) -> dict[str, Any]:
    """The inputs of one prompt with tokens behind it: whatever is said per token is zero for them."""
    import torch

    longer = {**inputs, "input_ids": ids, "attention_mask": mask}
    for key in ("mm_token_type_ids", "token_type_ids"):
        if key in inputs:
            more = ids.shape[1] - inputs[key].shape[1]
            longer[key] = torch.nn.functional.pad(inputs[key], (0, more))
    return longer
