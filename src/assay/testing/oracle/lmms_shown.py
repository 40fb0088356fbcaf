"""Requests, messages and numbers of Assay as an lmms-eval corpus writes them, for comparison."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from assay.core.errors import BadData
from assay.core.messages import Prompt, Text, Video
from assay.core.requests import Generate, Likelihood, Request
from assay.core.verdicts import Estimate
from assay.engine.judging.documents import Judged
from assay.engine.planning.plan import PlannedTask
from assay.tasks import multimodal
from assay.tasks.media import AUDIO_SUFFIXES, IMAGE_SUFFIXES
from assay.tasks.task import Task
from assay.testing.oracle.lmms_values import encode

__all__ = ["Shown", "messages_of", "request_of", "results_of"]


class Shown:
    """Remembers what each media part of a prompt was made of: a corpus knows what helpers returned, not our parts."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While prompts are made."""
        names = vars(multimodal)
        real = names["media_part"]

        def remember(value: Any, **keywords: Any) -> Any:
            try:
                part = real(value, **keywords)
            except BadData:  # a file the recording did not have either
                part = Video(digest="", load=lambda: None, source=str(value))
            self._made[id(part)] = (part, value)
            return part

        names["media_part"] = remember
        try:
            yield
        finally:
            names["media_part"] = real

    def value(self, part: Any) -> Any:
        """What a part was made of."""
        return self._made[id(part)][1]

    def visuals(self, prompt: Prompt) -> list[Any]:
        """What `doc_to_visual` returned for a prompt."""
        return [encode(self.value(part)) for part in prompt.media]


def request_of(shown: Shown, request: Request) -> dict[str, Any]:
    """A request under the corpus's keys."""
    entry: dict[str, Any] = {"doc_id": request.document, "idx": request.index, "ctx": request.prompt.text}
    match request:
        case Generate():
            entry["generation_kwargs"] = encode(dict(request.settings.values))
        case Likelihood():
            entry["continuation"] = request.continuation
    entry["visuals"] = shown.visuals(request.prompt)
    return entry


def messages_of(shown: Shown, task: Task, fields: Mapping[str, Any], shots: Any) -> Any:
    """The conversation of a document; media under the kinds lmms-eval's protocol gives them."""
    if task.visuals.messages is not None:
        return encode(task.visuals.own_messages(fields))
    prompt = task.messages(fields, shots)
    content: list[Any] = []
    for part in prompt.messages[0].parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": encode(part.text)})
        else:
            content.append(encode(_content(shown.value(part))))
    return [{"role": "user", "content": content}]


def _content(value: Any) -> dict[str, Any]:
    """How the protocol names a medium: a sound that does not say what it is counts as a video there."""
    if isinstance(value, Mapping):
        timed = "video_start" in value or "video_end" in value
        url = value if timed else value.get("url") or value.get("path") or value
        return {"type": value.get("type", "video"), "url": url}
    if isinstance(value, str):
        suffix = os.path.splitext(value)[1].lower()  # noqa: PTH122 - as the protocol does
        kind = "image" if suffix in IMAGE_SUFFIXES else "audio" if suffix in AUDIO_SUFFIXES else "video"
        return {"type": kind, "url": value}
    return {"type": "image", "url": value}


def results_of(planned: PlannedTask, estimates: Sequence[Estimate], judged: Judged) -> dict[str, Any]:
    """The numbers under lmms-eval's keys; what a task returns but does not list is an empty list there."""
    numbers: dict[str, Any] = {}
    for estimate in estimates:
        name, pipeline = estimate.metric, estimate.pipeline
        numbers[f"{name},{pipeline}"] = f"no value: {estimate.why[-300:]}" if estimate.why else estimate.value
        for key, error in (
            ("stderr", estimate.stderr),
            ("stderr_clt", estimate.plain_stderr),
            ("stderr_clustered", estimate.clustered_stderr),
        ):
            numbers[f"{name}_{key},{pipeline}"] = "N/A" if error is None else error
    for verdict in judged.verdicts:
        if not planned.scorer.reports(verdict.metric):
            numbers[f"{verdict.metric},{verdict.pipeline}"] = []
            numbers[f"{verdict.metric}_stderr,{verdict.pipeline}"] = []
    return {key: encode(value) for key, value in numbers.items()}
