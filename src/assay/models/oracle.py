"""A model that is told the right answers, and gives them. A check for people who write tasks.

    assay run --model oracle --tasks my_task

must give full marks: what does not is a filter that loses the target, a stop string inside it, a metric that compares
something else, a target that is none of the choices. The model itself knows nothing of tasks: the engine tells it, because
it has a `tell` (`assay.core.ports.SupportsTargets`). Its answers depend on more than the requests, so they are not shared
between runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from assay.core.ports import Traits
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay.models.dummy import EVERYTHING, unreadable
from assay.models.tokens import cut_at_stops

__all__ = ["OracleModel"]


class OracleModel:
    """Answers with the target of the document it is asked about.

    >>> oracle = OracleModel()
    >>> oracle.tell("sums", 0, ["46"])
    >>> oracle.name
    'oracle'
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], Sequence[str | LogProbability]] = {}

    @property
    def name(self) -> str:
        return "oracle"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=EVERYTHING, window=256)

    async def identify(self) -> Mapping[str, str]:
        return {"name": self.name, "version": "1"}

    def tell(self, task: str, document: int, answers: Sequence[str | LogProbability]) -> None:
        """The right answer to each request of a document, by the request's `index`; none where there is none."""
        self._told[task, document] = answers

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Forget what it was told."""
        self._told.clear()

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            yield unreadable(request) or self._recall(request)

    def _recall(self, request: Request) -> Outcome:
        told = self._told.get((request.task, request.document), ())
        if request.index >= len(told):
            return Failure(
                request_id=request.id, kind="no target", message="the task does not say what is right here"
            )
        right = told[request.index]
        if isinstance(request, Generate):  # as a model's answer would, it ends at the first stop string
            text = cut_at_stops(str(right), request.settings.stop) if isinstance(right, str) else ""
            return Response(request_id=request.id, value=text, finish="stop")
        if isinstance(right, str):
            return Failure(
                request_id=request.id, kind="no target", message="the target is a text, not a choice"
            )
        return Response(request_id=request.id, value=right)
