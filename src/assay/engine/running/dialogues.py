"""Dialogues: what the answers to a document's questions lead to is asked too, through the same journal and cache.

Nothing of a dialogue is kept but its requests and responses. A continued run makes it anew and hears the kept
answers again, so a helper must say the same to the same answers.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay.core.dialogues import Dialogue, Finished
from assay.core.documents import Document
from assay.core.errors import AssayError, BadMedia, MissingPackage
from assay.core.messages import Prompt, Text, made_now
from assay.core.requests import Generate, Request, fingerprint
from assay.core.responses import Failure, Outcome
from assay.engine.planning.plan import PlannedTask
from assay.tasks.task import Task
from assay.user_code.runner import Draws
from assay.user_code.timeouts import current_watch

if TYPE_CHECKING:
    from assay.engine.judging.documents import OpenDocument

__all__ = ["Ended", "Talks", "go_on"]


@dataclass(frozen=True, slots=True)
class Ended:
    """Dialogues of which only the end is left, as another process needs to know them."""

    answers: list[Any]


class Talks:
    """The dialogues about one document, one per repeat; they go on side by side, turn by turn."""

    def __init__(self, task: Task, document: Document, first: Sequence[Request]) -> None:
        self._document = document.index
        self._dialogues: list[Dialogue] = []
        for request in first:
            assert isinstance(request, Generate)
            self._dialogues.append(task.dialogue(document, request))
        self._turns: list[list[str]] = [[] for _ in self._dialogues]
        self._ends: list[Finished | None] = [None for _ in self._dialogues]
        self._heard = 0

    @property
    def answers(self) -> list[Any]:
        """What the dialogues came to."""
        return [end.answer for end in self._ends if end is not None]

    def go_on(
        self, requests: Sequence[Request], outcomes: Sequence[Outcome | None], draws: Draws, limit: int | None
    ) -> list[Generate] | Failure:
        """What to ask next after the responses so far; nothing at the end; why it cannot go on, where it cannot."""
        for request, outcome in zip(requests[self._heard :], outcomes[self._heard :], strict=True):
            if isinstance(outcome, Failure):
                return outcome
            assert outcome is not None and isinstance(outcome.value, str)
            self._turns[request.repeat].append(outcome.value)
        self._heard = len(requests)
        following: list[Generate] = []
        for repeat, dialogue in enumerate(self._dialogues):
            turns = self._turns[repeat]
            if self._ends[repeat] is not None:
                continue
            draws.talking(self._document, repeat, len(turns))
            try:
                with current_watch():
                    step = dialogue.next(turns)
            except MissingPackage:
                raise  # no document can do without
            except Exception as error:  # noqa: BLE001 - helper border: a helper may fail in any round
                why = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-3)
                kind = "bad media" if isinstance(error, BadMedia) else "not rendered"
                return Failure(request_id="", kind=kind, message=f"round {len(turns)}: {why}")
            if isinstance(step, Finished):
                self._ends[repeat] = step
            elif limit is not None and len(turns) >= limit:
                return _too_long(limit)
            else:
                following.append(step)
        return following


def go_on(
    planned: PlannedTask, documents: Sequence[OpenDocument], draws: Draws, *, limit: int, model_digest: str
) -> None:
    """Let the dialogues of complete documents go on. Those with more to ask are not complete any more."""
    own_limit = planned.spec.output_type == "generate_until_agentic"  # `max_agentic_steps`
    for document in documents:
        if not isinstance(document.talks, Talks) or document.failure is not None:
            continue
        following = document.talks.go_on(
            document.requests, document.outcomes, draws, None if own_limit else limit
        )
        if isinstance(following, Failure):
            document.outcomes.append(following)
            continue
        document.requests = (*map(_without_media, document.requests), *following)
        document.fingerprints += tuple(fingerprint(model_digest, request.id) for request in following)
        document.outcomes += [None] * len(following)
        document.missing = len(following)


def _without_media(request: Request) -> Request:
    """The same request, for the journal alone: the media of a round that was answered need not be held."""
    if not any(part.load is not _let_go for part in request.prompt.media):
        return request
    messages = [
        replace(
            message,
            parts=tuple(
                part if isinstance(part, Text) else replace(part, load=_let_go, held_bytes=0, keep=made_now)
                for part in message.parts
            ),
        )
        for message in request.prompt.messages
    ]
    return replace(request, prompt=Prompt(tuple(messages), chat=request.prompt.chat))


def _let_go() -> Any:
    raise AssayError("the medium of a round that was answered is not held any more")


def _too_long(limit: int) -> Failure:
    message = (
        f"the dialogue did not end within {limit} rounds; --max_rounds allows more, and the run goes on there"
    )
    return Failure(request_id="", kind="too many rounds", message=message)
