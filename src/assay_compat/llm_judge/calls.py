"""Send one judge request of a helper: to the run's judge, to the endpoint set by environment variables through the run, or
directly to that endpoint outside a run."""

from __future__ import annotations

import asyncio
import base64
import io
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.fingerprints import digest_text
from assay.core.ports import Model
from assay.core.records.messages import Image, Message, Part, Prompt, Role, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome
from assay.engine.judging.context import DocumentJudgeContext, current_judge_context
from assay_compat.llm_judge.endpoints import EndpointModel, to_data_url

__all__ = ["JudgeCall", "JudgeError", "JudgeReply", "find_run_judge"]

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant"}


class JudgeError(RuntimeError):
    """The judge did not answer, so that the document has no score."""


class JudgeReply(NamedTuple):
    """The reply of a judge."""

    content: str
    model: str
    usage: dict[str, int] | None


def find_run_judge(wanted: str | None = None) -> str | None:
    """Return the name of a judge of the current run: the named one if it exists, else the first; None without judges."""
    sitting = current_judge_context()
    if sitting is None or not sitting.judges:
        return None
    return wanted if wanted in sitting.judges else sitting.judges[0]


class JudgeCall:
    """A judge request that is ready to send."""

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *, name: str | None = None
    ) -> None:
        self._messages = tuple(_parse_message(message) for message in messages)
        self._settings = dict(settings)
        self._judge = find_run_judge(name)

    def ask(self, endpoint: EndpointModel | None, missing: str) -> JudgeReply:
        """Ask the run's judge, or else the endpoint, and wait for the reply.

        Raises:
            JudgeError: The judge failed, or no judge is configured (`missing` describes what is missing).
        """
        sitting = current_judge_context()
        judge = self._select_judge(endpoint, missing, sitting)
        if sitting is not None:
            return self._parse_outcome(
                sitting.ask(judge, self._build_prompt(judge, sitting), self._build_settings(judge)), judge
            )
        assert isinstance(judge, EndpointModel)
        return self._parse_outcome(judge.answer_one(self._build_request()), judge)

    async def ask_async(self, endpoint: EndpointModel | None, missing: str) -> JudgeReply:
        """Do the same without blocking the event loop of the helper."""
        sitting = current_judge_context()
        judge = self._select_judge(endpoint, missing, sitting)
        if sitting is not None:
            prompt, settings = self._build_prompt(judge, sitting), self._build_settings(judge)
            return self._parse_outcome(await sitting.ask_async(judge, prompt, settings), judge)
        assert isinstance(judge, EndpointModel)
        return self._parse_outcome(await asyncio.to_thread(judge.answer_one, self._build_request()), judge)

    def _select_judge(
        self, endpoint: EndpointModel | None, missing: str, sitting: DocumentJudgeContext | None
    ) -> str | Model:
        if self._judge is not None:
            return self._judge
        if endpoint is None:
            if sitting is not None:
                sitting.record_failure(missing)
            raise JudgeError(missing)
        return endpoint

    def _build_prompt(self, judge: str | Model, sitting: DocumentJudgeContext) -> Prompt:
        if not isinstance(judge, str) or sitting.accepts_chat(judge):
            return Prompt(self._messages, chat=True)
        parts: list[Part] = []
        for message in self._messages:
            parts += [Text("\n\n")] if parts else []
            parts += message.parts
        return Prompt((Message("user", tuple(parts)),))

    def _build_settings(self, judge: str | Model) -> Settings:
        """Return the settings: unchanged for an endpoint, translated for a model of Assay."""
        if not isinstance(judge, str):
            return Settings(self._settings)
        length = self._settings.get("max_tokens", self._settings.get("max_completion_tokens"))
        known = {key: value for key, value in self._settings.items() if key in ("temperature", "top_p")}
        return Settings({"until": [], "temperature": 0.0, **known, "max_gen_toks": length})

    def _build_request(self) -> Generate:
        prompt = Prompt(self._messages, chat=True)
        return Generate(task="", document=-1, prompt=prompt, settings=Settings(self._settings))

    def _parse_outcome(self, outcome: Outcome, judge: str | Model) -> JudgeReply:
        if isinstance(outcome, Failure):
            raise JudgeError(f"judge failed: {outcome.kind}: {outcome.message}")
        usage = None
        if outcome.usage is not None:
            read, written = outcome.usage.input_tokens, outcome.usage.output_tokens
            usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return JudgeReply(str(outcome.value).strip(), judge if isinstance(judge, str) else judge.name, usage)


class _ImageLoader:
    """Loads an image from a data URL or address when it is needed."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self) -> Any:
        from PIL import Image as PilImage

        if self.url.startswith("data:"):
            data = base64.b64decode(self.url.partition(",")[2])
        else:
            with urllib.request.urlopen(self.url, timeout=60) as answer:
                data = answer.read()
        return PilImage.open(io.BytesIO(data))


def _parse_message(message: Mapping[str, Any]) -> Message:
    """Convert a message in OpenAI's format."""
    content = message.get("content")
    parts: list[Part] = []
    for piece in [content] if isinstance(content, str) else content or []:
        if isinstance(piece, str):
            parts.append(Text(piece))
        elif piece.get("type") == "text":
            parts.append(Text(piece["text"]))
        elif piece.get("type") == "image_url":
            image_url = piece["image_url"]
            parts.append(image_from_value(image_url["url"] if isinstance(image_url, Mapping) else image_url))
        else:
            raise ValueError(f"unsupported content type for a judge: {piece.get('type')!r}")
    return Message(_ROLES.get(str(message.get("role")), "user"), tuple(parts))


def image_from_value(value: Any) -> Image:
    """Convert a PIL image, a path, base64 bytes or an address to an image part."""
    if isinstance(value, bytes):
        url = f"data:image/jpeg;base64,{value.decode()}"
    elif isinstance(value, str) and not value.startswith(("data:", "http://", "https://")):
        from PIL import Image as PilImage

        with PilImage.open(Path(value)) as opened:
            url = to_data_url(opened)
    elif isinstance(value, str):
        url = value
    else:
        url = to_data_url(value)
    return Image(digest=digest_text("address", url), load=_ImageLoader(url), source="judge")
