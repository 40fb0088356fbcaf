"""`judge` in another process, perhaps on another machine: orders in, what judging made of some documents out.

The process reads the task as the driver did and compares what it read; it judges document by document, on the same draws. It
executes programs in a sandbox of its own. It cannot ask judges: a document whose code wants to goes back to the driver. What the
judges of a jury replied to the driver is read here.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn, cast

from assay.core.errors import BadOption
from assay.core.executing import executing
from assay.core.programs import Isolation
from assay.core.runspec import RunSpec
from assay.engine.judging.context import Court, Sitting, seated
from assay.engine.judging.documents import Judged, OpenDocument, judge
from assay.engine.judging.llm_judges import Hearing, decided
from assay.engine.judging.repeats import judge_repeats
from assay.engine.planning.plan import PlannedTask, plan_one
from assay.engine.planning.recorded_plan import RememberedModel
from assay.sandboxes.program_runner import Programs, permitted
from assay.scoring.judges.jury import Decision, Seat
from assay.user_code.runner import Draws
from assay.user_code.timeouts import watching

__all__ = ["Finding", "Order", "decide_away", "judge_away", "packed", "unpacked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Documents of one task, and everything needed to judge them."""

    spec: RunSpec
    task: str
    digest: str
    """The task as the driver read it."""

    model: Mapping[str, Any]
    """Name and abilities of the model: prompts depend on them."""

    documents: Sequence[OpenDocument] = ()
    hearings: Sequence[Hearing] = ()
    """Instead of documents: what the task's juries heard."""

    seats: Mapping[str, tuple[Seat, ...]]
    """Who judges each metric that models judge: judges are not planned here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of an order."""

    judged: Sequence[Judged | None]
    """One per document; None where the driver has to judge."""

    executed: int
    isolation: Isolation | None


@dataclass(slots=True, kw_only=True)
class _Desk:
    """A task, ready to be judged in this process."""

    planned: PlannedTask
    programs: Programs
    draws: Draws


_CANNOT_TRAVEL = (pickle.PicklingError, TypeError, AttributeError)
"""What pickle raises for things it does not know."""

_desks: dict[tuple[str, str], _Desk] = {}


def judge_away(data: bytes) -> bytes:
    """Carry out an order; both are bytes."""
    order: Order = pickle.loads(data)
    with watching(order.spec.helper_timeout):
        desk = _desk_for(order)
        before = desk.programs.executed
        with permitted(desk.programs, order.spec):
            judged = [_judged(desk, document) for document in order.documents]
    executed = desk.programs.executed - before
    return packed(Finding(judged=judged, executed=executed, isolation=desk.programs.isolation))


def decide_away(data: bytes) -> bytes:
    """What juries make of what they heard; None where that cannot travel."""
    order: Order = pickle.loads(data)
    with watching(order.spec.helper_timeout):
        desk = _desk_for(order)
        juries = desk.planned.scorer.juries
        return packed([_travelling(decided(juries[one.jury], one)) for one in order.hearings])


def _travelling(decision: Decision) -> Decision | None:
    try:
        packed(decision)
    except _CANNOT_TRAVEL:
        return None
    return decision


def _desk_for(order: Order) -> _Desk:
    return _desks.get((order.task, order.digest)) or _open_desk(order)


def _open_desk(order: Order) -> _Desk:
    """Read the task as the driver did.

    Raises:
        BadOption: It is another one here.
    """
    spec = replace(order.spec, replicas=1, ray=None, workers=0)
    programs = Programs(spec.sandbox, spec.sandbox_args, at_once=1)
    manifest = {"model": order.model, "options": {"token_logprobs": spec.token_logprobs}}
    with executing(programs):
        planned = plan_one(spec, order.task, RememberedModel(manifest), programs)
    if planned.digest != order.digest:
        raise BadOption(
            f"the task `{order.task}` is another one on {os.uname().nodename}",
            where="--workers",
            hint="its files and its data have to be the same on every machine",
        )
    planned.scorer.seat(lambda judge: order.seats[judge.metric])
    desk = _Desk(planned=planned, programs=programs, draws=Draws(spec.seed, order.task))
    _desks[order.task, order.digest] = desk
    return desk


def _judged(desk: _Desk, document: OpenDocument) -> Judged | None:
    """What judging makes of one document; None where it wants a judge, or where the result cannot travel."""
    away = _AwayCourt()
    court = cast("Court", away)
    try:
        judged = judge(desk.planned, [document], draws=desk.draws, court=court)
        if desk.planned.spec.repeats > 1:
            judge_repeats(desk.planned, [document], judged, desk.draws, court)
        packed(judged)
    except _CANNOT_TRAVEL:
        return None
    return None if away.asked else judged


class _NobodyToAsk(BaseException):
    """A document's code asked for a judge. Not an `Exception`, which helpers make something else of."""


class _AwayCourt:
    """A court without judges, in which everything is done at once."""

    asked = False
    """Whether somebody wanted a judge: what was made of the document without one does not count."""

    @property
    def foreign(self) -> _AwayCourt:
        return self

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [function(item) for item in items]

    @contextmanager
    def sitting(self, task: str, document: int) -> Iterator[Sitting]:
        """Open while a task's own code judges a document."""
        sitting = cast("Sitting", _AwaySitting(self))
        with seated(sitting):
            yield sitting


class _AwaySitting:
    """Whoever asks here is sent back."""

    failed = ""

    def __init__(self, court: _AwayCourt) -> None:
        self._court = court

    def inner(self) -> _AwaySitting:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        self._court.asked = True
        raise _NobodyToAsk(name)


class _Pickler(pickle.Pickler):
    dispatch_table = cast(Any, {MappingProxyType: lambda mapping: (dict, (dict(mapping),))})


def packed(thing: Any) -> bytes:
    """Anything of the engine, in bytes.

    Raises:
        Exception: What pickle raises for what it cannot keep.
    """
    import io

    stream = io.BytesIO()
    _Pickler(stream, 5).dump(thing)
    return stream.getvalue()


def unpacked(data: bytes) -> Any:
    """The thing again."""
    return pickle.loads(data)
