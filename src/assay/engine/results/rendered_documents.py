"""Render the documents of a planned task as a run does, in a form that can be compared. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from assay.core.records.documents import Document
from assay.core.records.requests import compute_fingerprint
from assay.engine.planning.records import Plan, PlannedTask
from assay.store.journal import rows
from assay.user_code.random_state import TaskRandomState

__all__ = ["cut_around_difference", "index_requests", "render_documents"]

_BATCH_SIZE = 256
_EXCERPT_LENGTH = 200
"""Characters to show around the first difference."""


def render_documents(plan: Plan, planned: PlannedTask) -> Iterator[tuple[Document, Any, Any]]:
    """Yield (document, target, requests) as a run renders them; an error text instead of requests that fail."""
    task = planned.task
    random_state = TaskRandomState(plan.spec.seed, task.name, planned.prompt_states)
    rendering, documents = task.start_pass(), iter(task.documents())
    digest = plan.model_digest
    while batch := list(islice(documents, _BATCH_SIZE)):
        made: list[tuple[Document, Any, Any]] = []
        with random_state.continue_rendering():
            for document in batch:
                try:
                    requests = rendering.render_requests(document)
                    marks = [compute_fingerprint(digest, request.id) for request in requests]
                    content: Any = json.loads(rows.encode_requests(requests, marks))
                except Exception as error:  # noqa: BLE001 - user code: a template or helper may fail on any document
                    content = f"{type(error).__name__}: {error}"
                made.append((document, _render_target(planned, document), content))
        yield from made


def _render_target(planned: PlannedTask, document: Document) -> Any:
    try:
        return planned.task.target(planned.task.copy_for_code(document.fields))
    except Exception:  # noqa: BLE001 - user code: a target that fails now has changed
        return None


def index_requests(content: Mapping[str, Any]) -> dict[tuple[int, int], tuple[str, str, str]]:
    """Return (index, repeat) -> (kind, prompt, continuation or settings)."""
    prompts = content["prompts"]
    return {
        (number, repeat): (kind, prompts[prompt], argument)
        for number, repeat, kind, prompt, argument, *_ in content["requests"]
    }


def cut_around_difference(was: str, is_now: str) -> tuple[str, str]:
    """Cut two texts around their first difference."""
    at = next(
        (at for at, (one, other) in enumerate(zip(was, is_now, strict=False)) if one != other),
        min(len(was), len(is_now)),
    )
    start = max(0, at - _EXCERPT_LENGTH // 4)

    def cut(text: str) -> str:
        piece = text[start : start + _EXCERPT_LENGTH]
        return f"{'…' if start else ''}{piece}{'…' if len(text) > start + _EXCERPT_LENGTH else ''}"

    return cut(was), cut(is_now)
