"""From logits to the next token of each row: greedy, or sampled with the row's own random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.requests import Generate

__all__ = ["SamplingSettings", "argmax_tokens", "sample_tokens", "sampling_from_request"]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How to select the next token. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


def sampling_from_request(request: Generate, defaults: Any) -> SamplingSettings:
    """Return the sampling settings of the request, else those of the checkpoint's generation config."""
    settings = request.settings
    if settings.temperature == 0:
        return SamplingSettings()

    def read(name: str, neutral: float) -> float:
        value = settings.values.get(name, getattr(defaults, name, None))
        return neutral if value is None else float(value)

    return SamplingSettings(
        settings.temperature, int(read("top_k", 0)), read("top_p", 1.0), read("min_p", 0.0)
    )


def sample_tokens(
    logits: Any, settings: Sequence[SamplingSettings], generators: Sequence[random.Random | None]
) -> list[int]:
    """Select one token per row of `[rows, vocabulary]`. A row's sample does not depend on the other rows."""
    import torch

    with torch.inference_mode():
        tokens = argmax_tokens(logits)
        groups: dict[SamplingSettings, list[int]] = {}
        for row, choice in enumerate(settings):
            if not choice.is_greedy:
                groups.setdefault(choice, []).append(row)
        for choice, rows in groups.items():
            numbers = [draw.random() for row in rows if (draw := generators[row]) is not None]
            tokens[rows] = _draw_tokens(
                logits[rows].float(), choice, torch.tensor(numbers, device=logits.device)
            )
        found: list[int] = tokens.tolist()
        return found


def argmax_tokens(logits: Any) -> Any:
    """Return the first of the most likely tokens of each row. On a CPU, NumPy is many times faster than torch."""
    import torch

    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def _draw_tokens(logits: Any, choice: SamplingSettings, numbers: Any) -> Any:
    """Sample by inverting the cumulative distribution. Sorts only if `top_k` or `top_p` needs it."""
    import torch

    logits = logits / choice.temperature
    limited = choice.top_p < 1 or 0 < choice.top_k < logits.shape[-1]
    order = None
    if limited:
        count = choice.top_k if 0 < choice.top_k < logits.shape[-1] else logits.shape[-1]
        logits, order = logits.topk(count, dim=-1)
    probabilities = logits.softmax(-1).double()
    if choice.min_p > 0:
        probabilities[probabilities < choice.min_p * probabilities.amax(-1, keepdim=True)] = 0
    if choice.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities[before >= choice.top_p] = 0  # the most likely token is always kept
    cumulative = probabilities.cumsum(-1)
    targets = numbers[:, None].double() * cumulative[:, -1:]
    positions = torch.searchsorted(cumulative, targets, right=True).clamp(max=cumulative.shape[-1] - 1)
    return positions[:, 0] if order is None else order.gather(-1, positions)[:, 0]
