"""One question to a judge, from a helper's `server.evaluate` to the answer: through the run's judge, an endpoint of the
environment, or, outside of a run, straight to that endpoint."""

from __future__ import annotations

import asyncio
import base64
import io
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.fingerprints import digest_text
from assay.core.messages import Image, Message, Part, Prompt, Role, Text
from assay.core.ports import Model
from assay.core.requests import Generate, Settings
from assay.core.responses import Failure, Outcome
from assay.engine.judging.context import Sitting, current_sitting
from assay_compat.llm_judge.endpoints import EndpointModel, data_url

__all__ = ["JudgeCall", "JudgeError", "Reply", "house_judge"]

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant"}


class JudgeError(RuntimeError):
    """The judge did not answer. The document it was about stays without a score."""


class Reply(NamedTuple):
    """What a judge said."""

    content: str
    model: str
    usage: dict[str, int] | None


def house_judge(wanted: str | None = None) -> str | None:
    """The judge of the run that is going on, if `--judge` names one: the wanted one, else the first."""
    sitting = current_sitting()
    if sitting is None or not sitting.judges:
        return None
    return wanted if wanted in sitting.judges else sitting.judges[0]


class JudgeCall:
    """One question, ready to be asked."""

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *, name: str | None = None
    ) -> None:
        self._messages = tuple(_message(message) for message in messages)
        self._settings = dict(settings)
        self._judge = house_judge(name)

    def ask(self, endpoint: EndpointModel | None, missing: str) -> Reply:
        """Ask the run's judge, else the endpoint; wait for the answer.

        Raises:
            JudgeError: Nobody answered, or there is nobody to ask (`missing` says why).
        """
        sitting = current_sitting()
        judge = self._whom(endpoint, missing, sitting)
        if sitting is not None:
            return self._read(sitting.ask(judge, self._prompt(judge, sitting), self._asked(judge)), judge)
        assert isinstance(judge, EndpointModel)
        return self._read(judge.answer_one(self._request()), judge)

    async def ask_async(self, endpoint: EndpointModel | None, missing: str) -> Reply:
        """The same without blocking the helper's own loop."""
        sitting = current_sitting()
        judge = self._whom(endpoint, missing, sitting)
        if sitting is not None:
            prompt, settings = self._prompt(judge, sitting), self._asked(judge)
            return self._read(await sitting.ask_async(judge, prompt, settings), judge)
        assert isinstance(judge, EndpointModel)
        return self._read(await asyncio.to_thread(judge.answer_one, self._request()), judge)

    def _whom(self, endpoint: EndpointModel | None, missing: str, sitting: Sitting | None) -> str | Model:
        if self._judge is not None:
            return self._judge
        if endpoint is None:
            if sitting is not None:
                sitting.refuse(missing)
            raise JudgeError(missing)
        return endpoint

    def _prompt(self, judge: str | Model, sitting: Sitting) -> Prompt:
        if not isinstance(judge, str) or sitting.takes_chat(judge):
            return Prompt(self._messages, chat=True)
        parts: list[Part] = []
        for message in self._messages:
            parts += [Text("\n\n")] if parts else []
            parts += message.parts
        return Prompt((Message("user", tuple(parts)),))

    def _asked(self, judge: str | Model) -> Settings:
        """The settings as the judge knows them: an endpoint under its own names, a model of Assay under Assay's."""
        if not isinstance(judge, str):
            return Settings(self._settings)
        length = self._settings.get("max_tokens", self._settings.get("max_completion_tokens"))
        known = {key: value for key, value in self._settings.items() if key in ("temperature", "top_p")}
        return Settings({"until": [], "temperature": 0.0, **known, "max_gen_toks": length})

    def _request(self) -> Generate:
        prompt = Prompt(self._messages, chat=True)
        return Generate(task="", document=-1, prompt=prompt, settings=Settings(self._settings))

    def _read(self, outcome: Outcome, judge: str | Model) -> Reply:
        if isinstance(outcome, Failure):
            raise JudgeError(f"judge failed: {outcome.kind}: {outcome.message}")
        usage = None
        if outcome.usage is not None:
            read, written = outcome.usage.input_tokens, outcome.usage.output_tokens
            usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return Reply(str(outcome.value).strip(), judge if isinstance(judge, str) else judge.name, usage)


class _Encoded:
    """A picture that came inside an address: decoded when somebody looks, sent on as it is otherwise."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self) -> Any:
        from PIL import Image as Pictures

        if self.url.startswith("data:"):
            data = base64.b64decode(self.url.partition(",")[2])
        else:
            with urllib.request.urlopen(self.url, timeout=60) as answer:
                data = answer.read()
        return Pictures.open(io.BytesIO(data))


def _message(message: Mapping[str, Any]) -> Message:
    """A message in OpenAI's form as one of Assay's."""
    content = message.get("content")
    parts: list[Part] = []
    for piece in [content] if isinstance(content, str) else content or []:
        if isinstance(piece, str):
            parts.append(Text(piece))
        elif piece.get("type") == "text":
            parts.append(Text(piece["text"]))
        elif piece.get("type") == "image_url":
            said = piece["image_url"]
            parts.append(picture(said["url"] if isinstance(said, Mapping) else said))
        else:
            raise ValueError(f"a judge cannot be shown a part of the type {piece.get('type')!r}")
    return Message(_ROLES.get(str(message.get("role")), "user"), tuple(parts))


def picture(value: Any) -> Image:
    """A picture given as PIL's, as a path, as base64 bytes or as an address."""
    if isinstance(value, bytes):
        url = f"data:image/jpeg;base64,{value.decode()}"
    elif isinstance(value, str) and not value.startswith(("data:", "http://", "https://")):
        from PIL import Image as Pictures

        with Pictures.open(Path(value)) as opened:
            url = data_url(opened)
    elif isinstance(value, str):
        url = value
    else:
        url = data_url(value)
    return Image(digest=digest_text("address", url), load=_Encoded(url), source="judge")
