"""`judge`, by models: complete documents go to the juries of their task, many at the same time."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence

from assay.core.errors import AssayError, BadTask
from assay.core.ports import Services
from assay.core.verdicts import Answer, Unscored
from assay.engine.cases import make_case
from assay.engine.foreign_code import ForeignCode
from assay.engine.judging import Judged, OpenDocument
from assay.engine.plan import PlannedTask
from assay.scoring.judges.jury import Decision, Jury
from assay.scoring.judges.records import Case
from assay.tasks.task import Task

__all__ = ["JUDGE_FAILED", "deliberate"]

JUDGE_FAILED = "judge-failed"
"""How a document ended whose judge did not answer: without a score, and judged again by the next start."""

_WITHOUT_ANSWER = frozenset(("unscored", "judge-failed", "failed", "skipped"))


async def deliberate(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    judged: Judged,
    services: Services,
    foreign: ForeignCode,
) -> None:
    """Add what the juries say to what the other metrics said. A document that is unscored already is left alone."""
    task, juries = planned.task, planned.scorer.juries
    scored = {document for document, outcome, _ in judged.outcomes if outcome not in _WITHOUT_ANSWER}
    by_index = {document.document.index: document for document in documents}
    todo = [(jury, answer) for answer in judged.answers if answer.document in scored for jury in juries]
    cases = await foreign.run(  # the task's own templates and functions may be needed
        lambda: [_make_case(task, jury, by_index[answer.document], answer) for jury, answer in todo]
    )
    hearings = [
        _hear(jury, case, answer, services, task.name)
        for (jury, answer), case in zip(todo, cases, strict=True)
    ]
    lost: dict[int, tuple[str, str]] = {}
    for (_, answer), decision in zip(todo, await asyncio.gather(*hearings), strict=True):
        judged.verdicts += decision.verdicts
        why = decision.failed or next(
            (verdict.why for verdict in decision.verdicts if isinstance(verdict, Unscored)), ""
        )
        if decision.failed or (why and answer.document not in lost):
            lost[answer.document] = (JUDGE_FAILED if decision.failed else "unscored", why)
    judged.outcomes = [
        (document, *lost.get(document, (outcome, why))) for document, outcome, why in judged.outcomes
    ]


def _make_case(task: Task, jury: Jury, opened: OpenDocument, answer: Answer) -> Case | str:
    """The case, or why there is none."""
    try:
        return make_case(
            task, jury, opened.document, opened.requests, answer.values[0], opened.target, opened.shown
        )
    except AssayError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - helper border: the task's own functions may be called
        return traceback.format_exc(limit=-3)


async def _hear(jury: Jury, case: Case | str, answer: Answer, services: Services, task: str) -> Decision:
    document, pipeline = answer.document, answer.pipeline
    if isinstance(case, str):
        return jury.without(case, document, pipeline)
    try:
        return await jury.decide(case, services, task=task, document=document, pipeline=pipeline)
    except BadTask as error:  # its prompt cannot be made of this document
        return jury.without(str(error), document, pipeline)
    except AssayError:
        raise  # not this document's trouble: the judge cannot be opened, the journal cannot be written
    except Exception:  # noqa: BLE001 - border: a kind of judge may be somebody's plugin
        return jury.without(traceback.format_exc(limit=-3), document, pipeline)
