"""Convert requests, messages and results of Assay to the format of an lmms_eval corpus, for comparison."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.messages import Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.verdicts import Estimate
from assay.engine.open_document import JudgedBatch
from assay.engine.planning.records import PlannedTask
from assay.tasks.prompts import multimodal
from assay.tasks.prompts.media_parts import AUDIO_SUFFIXES, IMAGE_SUFFIXES
from assay.tasks.task import Task
from tools.oracle.lmms_eval_values import encode_value

__all__ = ["MediaTracker", "format_messages", "format_request", "format_results"]


class MediaTracker:
    """Tracks the source value of each media part: a corpus records what helper functions returned, not parts."""

    def __init__(self) -> None:
        self._sources: dict[int, tuple[Any, Any]] = {}

    @contextmanager
    def track(self) -> Iterator[None]:
        """Track every media part created in this context."""
        names = vars(multimodal)
        real = names["to_media_part"]

        def build_and_track(value: Any, **keywords: Any) -> Any:
            try:
                part = real(value, **keywords)
            except DatasetError:  # the file was missing in the recording too
                part = Video(digest="", load=lambda: None, source=str(value))
            self._sources[id(part)] = (part, value)
            return part

        names["to_media_part"] = build_and_track
        try:
            yield
        finally:
            names["to_media_part"] = real

    def find_source(self, part: Any) -> Any:
        """Return the value a part was built from."""
        return self._sources[id(part)][1]

    def format_visuals(self, prompt: Prompt) -> list[Any]:
        """Return what `doc_to_visual` returned for a prompt."""
        return [encode_value(self.find_source(part)) for part in prompt.media]


def format_request(tracker: MediaTracker, request: Request) -> dict[str, Any]:
    """Convert a request to the corpus's keys."""
    entry: dict[str, Any] = {"doc_id": request.document, "idx": request.index, "ctx": request.prompt.text}
    match request:
        case Generate():
            entry["generation_kwargs"] = encode_value(dict(request.settings.values))
        case Likelihood():
            entry["continuation"] = request.continuation
    entry["visuals"] = tracker.format_visuals(request.prompt)
    return entry


def format_messages(tracker: MediaTracker, task: Task, fields: Mapping[str, Any], shots: Any) -> Any:
    """Convert the messages of a document, with the media types of lmms_eval's chat protocol."""
    if task.multimodal.doc_to_messages is not None:
        return encode_value(task.multimodal.call_doc_to_messages(fields))
    prompt = task.build_messages(fields, shots)
    content: list[Any] = []
    for part in prompt.messages[0].parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": encode_value(part.text)})
        else:
            content.append(encode_value(_format_medium(tracker.find_source(part))))
    return [{"role": "user", "content": content}]


def _format_medium(value: Any) -> dict[str, Any]:
    """Return the protocol's entry of a medium: a mapping without a type counts as a video."""
    if isinstance(value, Mapping):
        timed = "video_start" in value or "video_end" in value
        url = value if timed else value.get("url") or value.get("path") or value
        return {"type": value.get("type", "video"), "url": url}
    if isinstance(value, str):
        suffix = os.path.splitext(value)[1].lower()  # noqa: PTH122 - as the protocol does
        kind = "image" if suffix in IMAGE_SUFFIXES else "audio" if suffix in AUDIO_SUFFIXES else "video"
        return {"type": kind, "url": value}
    return {"type": "image", "url": value}


def format_results(
    planned: PlannedTask, estimates: Sequence[Estimate], judged: JudgedBatch
) -> dict[str, Any]:
    """Convert estimates to lmms_eval's result keys; a metric that is returned but not listed is an empty list."""
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
        if not planned.scorer.is_reported(verdict.metric):
            numbers[f"{verdict.metric},{verdict.pipeline}"] = []
            numbers[f"{verdict.metric}_stderr,{verdict.pipeline}"] = []
    return {key: encode_value(value) for key, value in numbers.items()}
