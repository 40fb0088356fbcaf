"""What the models that come with Assay can be asked, known without making one: for hints, where another one is wanted.

A checkpoint, file or server may do less than its adapter can; the plan asks the model itself. `dummy`, `oracle` and `replay`
can everything and are left out: nobody who needs an answer is helped by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assay.core.ports import Ability

__all__ = ["OFFERS", "who_can"]

OFFERS: Mapping[str, str] = {
    "embedded": "generate likelihood rolling chat image",
    "smollm2": "generate likelihood rolling chat",
    "llamacpp": "generate likelihood rolling chat",
    "hf": "generate likelihood rolling chat image audio video",
    "vllm": "generate likelihood rolling chat image audio video",
    "openai": "generate chat image audio video",
    "openai-completions": "generate likelihood rolling chat",
    "local-completions": "generate likelihood rolling chat",
    "anthropic": "generate chat image video",
    "gemini": "generate chat image audio video",
    "litellm": "generate chat image audio video",
    "ocr": "generate chat image",
    "speech": "generate chat audio",
    "human": "generate likelihood chat image audio video",
}
"""Name -> everything its adapter can do."""

_NEED = {"ocr": "image", "speech": "audio"}
"""Readers that answer nothing without their medium."""


def who_can(needed: Iterable[Ability]) -> list[str]:
    """The models that can do all of it, those that need nothing first.

    >>> who_can(["likelihood", "image"])
    ['embedded', 'hf', 'vllm', 'human']
    """
    wanted = set(needed)
    return [
        name
        for name, can in OFFERS.items()
        if wanted <= set(can.split()) and _NEED.get(name, "") in {"", *wanted}
    ]
