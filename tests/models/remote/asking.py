"""Ask a model as the engine does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from assay.core.ports import Model
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Outcome
from assay.tasks.prompts.media_parts import to_image_part

GREEDY = {"until": ["\n"], "max_gen_toks": 12, "do_sample": False}


def ask(model: Model, requests: Sequence[Request]) -> dict[str, Outcome]:
    """Open, ask all in windows, close."""

    async def go() -> dict[str, Outcome]:
        await model.open()
        try:
            found = {}
            size = model.traits.window
            for at in range(0, len(requests), size):
                async for outcome in model.answer(requests[at : at + size]):
                    assert outcome.request_id not in found
                    found[outcome.request_id] = outcome
            return found
        finally:
            await model.close()

    return asyncio.run(go())


def chat(text: str, *, picture: Any = None, system: str = "") -> Prompt:
    parts = (Text(text),) if picture is None else (to_image_part(picture), Text(text))
    system_message = (Message("system", (Text(system),)),) if system else ()
    return Prompt((*system_message, Message("user", parts)), chat=True)


def generate(prompt: Prompt | str, *, document: int = 0, repeat: int = 0, **settings: Any) -> Generate:
    return Generate(
        task="t",
        document=document,
        repeat=repeat,
        prompt=chat(prompt) if isinstance(prompt, str) else prompt,
        settings=Settings({**GREEDY, **settings}),
    )
