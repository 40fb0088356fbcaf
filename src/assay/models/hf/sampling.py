"""From logits to the next token of each row: the most likely one, or drawn from each row's own numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.requests import Generate

__all__ = ["Choice", "choice_of", "choose_tokens", "most_likely"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How the next token is chosen: the most likely one, or drawn."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


def choice_of(request: Generate, defaults: Any) -> Choice:
    """What the request says, else what the checkpoint's generation config says."""
    settings = request.settings
    if settings.temperature == 0:
        return Choice()

    def said(name: str, neutral: float) -> float:
        value = settings.values.get(name, getattr(defaults, name, None))
        return neutral if value is None else float(value)

    return Choice(settings.temperature, int(said("top_k", 0)), said("top_p", 1.0), said("min_p", 0.0))


def choose_tokens(logits: Any, choices: Sequence[Choice], draws: Sequence[random.Random | None]) -> list[int]:
    """One token per row of `[rows, vocabulary]`. A row's draw does not depend on the other rows."""
    import torch

    with torch.inference_mode():
        tokens = most_likely(logits)
        groups: dict[Choice, list[int]] = {}
        for row, choice in enumerate(choices):
            if not choice.is_greedy:
                groups.setdefault(choice, []).append(row)
        for choice, rows in groups.items():
            numbers = [draw.random() for row in rows if (draw := draws[row]) is not None]
            tokens[rows] = _drawn(logits[rows].float(), choice, torch.tensor(numbers, device=logits.device))
        found: list[int] = tokens.tolist()
        return found


def most_likely(logits: Any) -> Any:
    """The first of the most likely tokens of each row; on a processor NumPy finds it many times faster than torch."""
    import torch

    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def _drawn(logits: Any, choice: Choice, numbers: Any) -> Any:
    """Draw by walking along the probabilities until the number is reached; sorted only where a limit needs it."""
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
        probabilities[before >= choice.top_p] = 0  # the most likely one always stays
    along = probabilities.cumsum(-1)
    reached = numbers[:, None].double() * along[:, -1:]
    places = torch.searchsorted(along, reached, right=True).clamp(max=along.shape[-1] - 1)
    return places[:, 0] if order is None else order.gather(-1, places)[:, 0]
