"""Read and render the documents of a task: in dataset order, in chunks, without those that are finished."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from itertools import islice

from assay.core.errors import AssayError, MediaError, MissingPackage
from assay.core.ports import SupportsDocuments, SupportsTargets
from assay.core.progress import TaskProgress
from assay.core.records.documents import Document
from assay.core.records.requests import compute_fingerprint
from assay.core.records.responses import Failure
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.planning.setup.oracle_targets import give_targets
from assay.engine.results.stop_rules import TaskStopRule
from assay.engine.running.agents import DocumentAgents
from assay.engine.running.dialogues import DocumentDialogues
from assay.engine.running.prefetch import FIRST_MEDIA_CHUNK_SIZE
from assay.tasks.task import RenderingPass
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import UserCodeExit, UserCodeTimeout, current_timer

__all__ = ["CHUNK_SIZE", "read_chunks", "render_document"]

CHUNK_SIZE = 256
"""Documents that are rendered, looked up and judged together."""


def read_chunks(
    plan: Plan,
    planned: PlannedTask,
    finished: AbstractSet[int],
    counters: TaskProgress,
    choose_chunk_size: Callable[[list[OpenDocument]], int],
    stop: TaskStopRule | None,
) -> Iterator[list[OpenDocument]]:
    """Render the documents that are not finished; with a stop rule, round by round."""
    if not planned.is_judged_per_document and len(finished) < planned.documents:
        finished = frozenset()  # its documents are judged together or not at all
    if stop is None:
        yield from _read_pass(plan, planned, finished, None, counters, choose_chunk_size)
        return
    for selected in stop.rounds():
        stop.unread_documents -= sum(document in finished for document in selected)
        for chunk in _read_pass(plan, planned, finished, selected, counters, choose_chunk_size):
            stop.unread_documents -= len(chunk)
            yield chunk
    counters.total = stop.asked


def _read_pass(
    plan: Plan,
    planned: PlannedTask,
    finished: AbstractSet[int],
    selected: AbstractSet[int] | None,
    counters: TaskProgress,
    choose_chunk_size: Callable[[list[OpenDocument]], int],
) -> Iterator[list[OpenDocument]]:
    """Read all documents once. Skipped ones still advance the few-shot sampler, so that the others get the same prompts."""
    rendering, digest = planned.task.start_pass(), plan.model_digest
    documents = iter(planned.task.documents())
    random_state = None
    if planned.has_user_code:
        random_state = TaskRandomState(plan.spec.seed, planned.task.name, planned.prompt_states)
    size = FIRST_MEDIA_CHUNK_SIZE if planned.task.has_media else CHUNK_SIZE
    left = None if selected is None else len(selected)
    is_resumed = bool(finished)
    while (left is None or left > 0) and (batch := list(islice(documents, size))):
        chosen = batch if selected is None else [one for one in batch if one.index in selected]
        unfinished = {one.index for one in chosen if not is_resumed or one.index not in finished}
        with nullcontext() if random_state is None else random_state.continue_rendering():
            rendering.prefetch(len(batch))
            chunk = [
                render_document(planned, rendering, document, digest)
                for document in batch
                if document.index in unfinished or not _skip_document(rendering, document)
            ]
        if isinstance(plan.model, SupportsTargets):
            give_targets(plan.model, planned, chunk)
        if isinstance(plan.model, SupportsDocuments):
            plan.model.receive_documents(
                planned.task.spec.evaluated_split or "", [one.document for one in chunk]
            )
        counters.done += len(chosen) - len(chunk)
        counters.reused += len(chosen) - len(chunk)
        left = None if left is None else left - len(chosen)
        if planned.task.has_media:
            size = choose_chunk_size(chunk)
        if chunk:
            yield chunk


def render_document(
    planned: PlannedTask, rendering: RenderingPass, document: Document, model_digest: str
) -> OpenDocument:
    """Render the requests of a document; one that cannot be rendered is complete, with its failure."""
    task, timer = planned.task, current_timer()
    try:
        with timer:
            requests = rendering.render_requests(document)
        document = rendering.add_changes(document)
        dialogues: DocumentDialogues | DocumentAgents | None = None
        if task.spec.agent is not None:
            dialogues = DocumentAgents(task, document, requests)
            requests = ()  # the solver decides what is asked first
        elif task.is_dialogue:
            dialogues = DocumentDialogues(task, document, requests)
    except MissingPackage:
        raise  # every document needs it
    except Exception as error:  # noqa: BLE001 - user code: a template or helper may fail on any document
        why = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-3)
        kind = "bad media" if isinstance(error, MediaError) else "not rendered"
        failure = Failure(request_id="", kind=kind, message=why)
        return OpenDocument(document, (), (), [failure], 0)
    fingerprints = tuple([compute_fingerprint(model_digest, request.id) for request in requests])
    target = None
    try:
        with timer:
            target = task.target(task.copy_for_code(document.fields))
    except Exception:  # noqa: BLE001 - user code: judging reports a target that fails
        pass
    count = len(requests)
    return OpenDocument(document, requests, fingerprints, [None] * count, count, target, (), dialogues)


def _skip_document(rendering: RenderingPass, document: Document) -> bool:
    """Skip a finished document, even one whose code times out. Always true."""
    with suppress(UserCodeTimeout, UserCodeExit), current_timer():
        rendering.skip(document)
    return True
