"""Build batches of input tensors, padded on the left: from tokens, or with the processor for prompts with media."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.media import Clip
from assay.models.hf.multimodal.prompt_layout import PromptInputs
from assay.models.tokens import TextEncoder, Unanswerable

__all__ = ["Batch", "Batcher"]

_TICKS_PER_S = 1000
"""Processors take frame numbers and a frame rate. Milliseconds as frame numbers give exact times at any frame rate."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Input tensors of a model, one row per prompt."""

    inputs: dict[str, Any]
    lengths: tuple[int, ...]
    """Number of tokens of each row, without padding."""

    has_media: bool


class Batcher:
    """Builds batches for one checkpoint."""

    def __init__(self, processor: Any, model: Any, *, rate_hz: int, max_length: int) -> None:
        self._processor = processor
        self._model = model
        self._rate_hz = rate_hz
        self.max_length = max_length
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.tokenizer.padding_side = "left"
        self._forward_parameters = inspect.signature(model.forward).parameters
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
        """The device of the model."""
        return self._model.device

    @property
    def pad_id(self) -> int:
        """The padding token. Any token works, because padding is masked."""
        pad = self.tokenizer.pad_token_id
        return int(self.encoder.prefix_token if pad is None else pad)

    def batch_tokens(self, rows: Sequence[Sequence[int]]) -> Batch:
        """Return a batch of text prompts."""
        import torch

        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, width - len(row) :] = torch.tensor(row, dtype=torch.long)
            mask[index, width - len(row) :] = 1
        inputs = {"input_ids": ids.to(self._model.device), "attention_mask": mask.to(self._model.device)}
        return Batch(inputs, tuple(len(row) for row in rows), False)

    def batch_media(self, rows: Sequence[PromptInputs]) -> Batch:
        """Return a batch of prompts with the same kinds of media, all with or all without a start token.

        Raises:
            Unanswerable: A prompt exceeds the context length. It is not truncated, because that could remove an image.
            ValueError: The processor rejects a medium.
        """
        arguments: dict[str, Any] = {
            "text": [row.text for row in rows],
            "padding": True,
            "return_tensors": "pt",
        }
        if self.has_start_token(rows[0]):
            arguments["add_special_tokens"] = False
        if rows[0].images:
            arguments["images"] = [list(row.images) for row in rows]
        if rows[0].clips:
            arguments["videos"] = [[list(clip.frames) for clip in row.clips] for row in rows]
            arguments["video_metadata"] = [[_metadata(clip) for clip in row.clips] for row in rows]
            arguments["do_sample_frames"] = False
        if rows[0].audios:
            arguments["audio"] = [audio for row in rows for audio in row.audios]
            arguments["sampling_rate"] = self._rate_hz
        outputs = self._processor(**arguments)
        inputs = {
            key: self._to_device(value) for key, value in outputs.items() if self._is_model_input(key, value)
        }
        lengths = tuple(inputs["attention_mask"].sum(dim=1).tolist())
        if max(lengths) >= self.max_length:
            raise Unanswerable(
                f"the prompt has {max(lengths)} tokens including media; the context length is {self.max_length}"
            )
        return Batch(inputs, lengths, True)

    def has_start_token(self, row: PromptInputs) -> bool:
        """Return whether the template already added the start token. A batch is all with or all without it."""
        return bool(self.encoder.prefix_text) and row.text.startswith(self.encoder.prefix_text)

    def _is_model_input(self, key: str, value: Any) -> bool:
        known = key in self._forward_parameters or any(
            one.kind is one.VAR_KEYWORD for one in self._forward_parameters.values()
        )
        return known and value is not None

    def _to_device(self, value: Any) -> Any:
        """Move a value to the device of the model, and floating point values to its dtype."""
        if isinstance(value, (list, tuple)):
            return [self._to_device(one) for one in value]
        if not hasattr(value, "to"):
            return value
        dtype = self._model.dtype if value.is_floating_point() else value.dtype
        return value.to(self._model.device, dtype)

    def has_parameter(self, name: str) -> bool:
        """Return whether the model's `forward` has a parameter of this name."""
        return name in self._forward_parameters


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


def extend_inputs(inputs: Mapping[str, Any], ids: Any, mask: Any) -> dict[str, Any]:
    """Return the inputs of one prompt with further tokens, whose per-token type ids are zero."""
    import torch

    longer = {**inputs, "input_ids": ids, "attention_mask": mask}
    for key in ("mm_token_type_ids", "token_type_ids"):
        if key in inputs:
            more = ids.shape[1] - inputs[key].shape[1]
            longer[key] = torch.nn.functional.pad(inputs[key], (0, more))
    return longer
