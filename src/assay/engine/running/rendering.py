"""`render_requests` for one document: what it asks, or why it cannot be asked."""

from __future__ import annotations

import traceback
from contextlib import suppress

from assay.core.documents import Document
from assay.core.errors import AssayError, BadMedia, MissingPackage
from assay.core.requests import fingerprint
from assay.core.responses import Failure
from assay.engine.judging.documents import OpenDocument
from assay.engine.planning.plan import PlannedTask
from assay.engine.running.dialogues import Talks
from assay.tasks.task import Pass
from assay.user_code.timeouts import HelperQuit, TookTooLong, current_watch

__all__ = ["open_document", "pass_over"]


def open_document(
    planned: PlannedTask, rendering: Pass, document: Document, model_digest: str
) -> OpenDocument:
    """A document with its requests; one that cannot be rendered is complete at once, with its failure."""
    task, watch = planned.task, current_watch()
    try:
        with watch:
            requests = rendering.requests(document)
        talks = Talks(task, document, requests) if task.is_dialogue else None
    except MissingPackage:
        raise  # no document can do without
    except Exception as error:  # noqa: BLE001 - helper border: a template or helper may fail on any one document
        why = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-3)
        kind = "bad media" if isinstance(error, BadMedia) else "not rendered"
        failure = Failure(request_id="", kind=kind, message=why)
        return OpenDocument(document, (), (), [failure], 0)
    marks = tuple([fingerprint(model_digest, request.id) for request in requests])
    target = None
    try:
        with watch:
            target = task.target(task.lend(document.fields))
    except Exception:  # noqa: BLE001 - helper border: a target that cannot be made is scoring's business
        pass
    count = len(requests)
    return OpenDocument(document, requests, marks, [None] * count, count, target, (), talks)


def pass_over(rendering: Pass, document: Document) -> bool:
    """Pass over a document that is finished; one whose own code does not come to an end, all the same. Always true."""
    with suppress(TookTooLong, HelperQuit), current_watch():
        rendering.skip(document)
    return True
