"""A model that answers with the target of each document. A check for task authors.

    assay run --model oracle --tasks my_task

must give a perfect score. If it does not, a filter loses the target, a stop string is inside it, a metric compares
something else, or the target is not one of the choices. The engine passes the targets to the model's `tell` method
(`assay.core.ports.SupportsTargets`). Its answers depend on more than the requests, so they are not cached across runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from assay.core.ports import Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.models.dummy import ALL_ABILITIES, check_media
from assay.models.tokens import cut_at_stops

__all__ = ["OracleModel"]


class OracleModel:
    """Answers each request with the target of its document.

    >>> oracle = OracleModel()
    >>> oracle.tell("sums", 0, ["46"])
    >>> oracle.name
    'oracle'
    """

    def __init__(self) -> None:
        self._targets: dict[tuple[str, int], Sequence[str | LogProbability]] = {}

    @property
    def name(self) -> str:
        return "oracle"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=ALL_ABILITIES, window=256)

    async def identify(self) -> Mapping[str, str]:
        return {"name": self.name, "version": "1"}

    def tell(self, task: str, document: int, answers: Sequence[str | LogProbability]) -> None:
        """Set the correct answer to each request of a document, ordered by the `index` of the request."""
        self._targets[task, document] = answers

    async def open(self) -> None:
        """Do nothing: there is nothing to load."""

    async def close(self) -> None:
        """Forget all targets."""
        self._targets.clear()

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            yield check_media(request) or self._answer_one(request)

    def _answer_one(self, request: Request) -> Outcome:
        targets = self._targets.get((request.task, request.document), ())
        in_dialogue = isinstance(request, Generate) and request.round > 0
        if request.index >= len(targets) and not (targets and in_dialogue):
            return Failure(
                request_id=request.id, kind="no target", message="the task has no target for this request"
            )
        # a dialogue can have more rounds than targets: the last target is repeated
        target = targets[min(request.index, len(targets) - 1)]
        if isinstance(request, Generate):  # like the answer of a real model, it ends at the first stop string
            text = cut_at_stops(str(target), request.settings.stop) if isinstance(target, str) else ""
            return Response(request_id=request.id, value=text, finish="stop")
        if isinstance(target, str):
            return Failure(
                request_id=request.id, kind="no target", message="the target is text, not one of the choices"
            )
        return Response(request_id=request.id, value=target)
