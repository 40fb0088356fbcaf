"""Advance dialogues: answers lead to further requests, through the same journal and cache.

The journal holds only the requests and responses of a dialogue. A resumed run starts the dialogue again and replays the stored
responses, so a helper must return the same for the same answers.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import AssayError, MediaError, MissingPackage
from assay.core.records.dialogues import Dialogue, DialogueResult, ResponseText
from assay.core.records.documents import Document
from assay.core.records.messages import Audio, Image, Prompt, Video, compute_uncached
from assay.core.records.requests import Generate, Request, compute_fingerprint
from assay.core.records.responses import Failure, Outcome
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.tasks.task import Task
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import current_timer

__all__ = ["DocumentDialogues", "FinishedDialogues", "add_requests", "advance_dialogues"]


@dataclass(frozen=True, slots=True)
class FinishedDialogues:
    """The results of dialogues, as a worker process gets them."""

    answers: list[Any]


class DocumentDialogues:
    """The dialogues about one document, one per repeat; they advance together, turn by turn."""

    def __init__(self, task: Task, document: Document, first: Sequence[Request]) -> None:
        self._document = document.index
        self._dialogues: list[Dialogue] = []
        for request in first:
            assert isinstance(request, Generate)
            self._dialogues.append(task.open_dialogue(document, request))
        self._turns: list[list[str]] = [[] for _ in self._dialogues]
        self._results: list[DialogueResult | None] = [None for _ in self._dialogues]
        self._processed = 0

    @property
    def answers(self) -> list[Any]:
        """The results of the dialogues that ended."""
        return [end.answer for end in self._results if end is not None]

    def advance(
        self,
        requests: Sequence[Request],
        outcomes: Sequence[Outcome | None],
        random_state: TaskRandomState,
        limit: int | None,
    ) -> list[Generate] | Failure:
        """Return the next requests after the responses so far; none at the end; a failure if it cannot continue."""
        for request, outcome in zip(requests[self._processed :], outcomes[self._processed :], strict=True):
            if isinstance(outcome, Failure):
                return outcome
            assert outcome is not None and isinstance(outcome.value, str)
            self._turns[request.repeat].append(ResponseText.from_response(outcome))
        self._processed = len(requests)
        following: list[Generate] = []
        for repeat, dialogue in enumerate(self._dialogues):
            turns = self._turns[repeat]
            if self._results[repeat] is not None:
                continue
            random_state.seed_for_turn(self._document, repeat, len(turns))
            try:
                with current_timer():
                    step = dialogue.next(turns)
            except MissingPackage:
                raise  # every document needs it
            except Exception as error:  # noqa: BLE001 - user code: a helper may fail in any round
                why = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-3)
                kind = "bad media" if isinstance(error, MediaError) else "not rendered"
                return Failure(request_id="", kind=kind, message=f"round {len(turns)}: {why}")
            if isinstance(step, DialogueResult):
                self._results[repeat] = step
            elif limit is not None and len(turns) >= limit:
                return _build_round_limit_failure(limit)
            else:
                following.append(step)
        return following


def advance_dialogues(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    *,
    random_state: TaskRandomState,
    limit: int,
    model_digest: str,
) -> None:
    """Advance the dialogues of complete documents. Those with further requests are no longer complete."""
    own_limit = planned.spec.output_type.is_agentic  # `max_agentic_steps`
    for document in documents:
        if not isinstance(document.dialogues, DocumentDialogues) or document.failure is not None:
            continue
        following = document.dialogues.advance(
            document.requests, document.outcomes, random_state, None if own_limit else limit
        )
        if isinstance(following, Failure):
            document.outcomes.append(following)
            continue
        add_requests(document, following, model_digest)


def add_requests(document: OpenDocument, following: Sequence[Generate], model_digest: str) -> None:
    """Add the requests of the next round to a document, which waits for their responses."""
    document.requests = (*map(_release_media, document.requests), *following)
    document.fingerprints += tuple(compute_fingerprint(model_digest, request.id) for request in following)
    document.outcomes += [None] * len(following)
    document.missing = len(following)


def _release_media(request: Request) -> Request:
    """Release the media of a round that was answered: only the journal still needs the request."""
    if not any(part.load is not _raise_released for part in request.prompt.media):
        return request
    messages = [
        replace(
            message,
            parts=tuple(
                replace(part, load=_raise_released, held_bytes=0, keep=compute_uncached)
                if isinstance(part, (Image, Audio, Video))
                else part
                for part in message.parts
            ),
        )
        for message in request.prompt.messages
    ]
    return replace(request, prompt=Prompt(tuple(messages), chat=request.prompt.chat))


def _raise_released() -> Any:
    raise AssayError("the media of this round were released after it was answered")


def _build_round_limit_failure(limit: int) -> Failure:
    message = f"the dialogue did not end within {limit} rounds; raise --max_rounds and resume the run"
    return Failure(request_id="", kind="too many rounds", message=message)
