"""Send requests to a transformers model as the engine does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Outcome
from assay.models.hf import HfModel

__all__ = ["ask", "chat", "generate", "likelihood", "rolling"]


def ask(
    folder: Path, requests: Sequence[Request], *, model: HfModel | None = None, **arguments: Any
) -> list[Outcome]:
    """Return the outcomes in the order of the requests."""
    model = model or HfModel(pretrained=str(folder), **arguments)

    async def work() -> dict[str, Outcome]:
        await model.open()
        try:
            return {outcome.request_id: outcome async for outcome in model.answer(requests)}
        finally:
            await model.close()

    found = asyncio.run(work())
    return [found[request.id] for request in requests]


def generate(text: str | Prompt, *, repeat: int = 0, **settings: Any) -> Generate:
    prompt = Prompt.of_text(text) if isinstance(text, str) else text
    return Generate(
        task="t",
        document=0,
        repeat=repeat,
        prompt=prompt,
        settings=Settings({"max_gen_toks": 12, **settings}),
    )


def likelihood(text: str, continuation: str) -> Likelihood:
    return Likelihood(task="t", document=0, prompt=Prompt.of_text(text), continuation=continuation)


def rolling(text: str) -> RollingLikelihood:
    return RollingLikelihood(task="t", document=0, prompt=Prompt.of_text(text))


def chat(*turns: tuple[str, str]) -> Prompt:
    return Prompt(tuple(Message(role, (Text(text),)) for role, text in turns), chat=True)  # type: ignore[arg-type]
