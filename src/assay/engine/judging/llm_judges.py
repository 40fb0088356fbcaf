"""Ask the LLM judges of a task about complete documents, many at the same time.

The driver asks; replies are parsed here or on workers.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from assay.core.errors import AssayError, TaskError
from assay.core.ports import Services
from assay.core.records.agents import FAULT_ENDS
from assay.core.records.verdicts import Answer, Unscored
from assay.engine.judging.agent_attempts import average_attempts, split_attempts
from assay.engine.judging.judge_inputs import build_judge_input
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.scoring.judges.panel import JudgePanel, MemberReplies, PanelDecision
from assay.scoring.judges.records import JudgeInput
from assay.tasks.task import Task
from assay.user_code.executor import Executor

__all__ = ["JUDGE_FAILED", "JudgeReplies", "ReadReplies", "ask_judges", "read_replies"]

JUDGE_FAILED = "judge-failed"
"""The ending of a document whose judge did not answer or whose workers died: no score, judged again at the next start."""

_WITHOUT_ANSWER = frozenset(("unscored", "judge-failed", "failed", "skipped", *FAULT_ENDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReplies:
    """The replies of a judge panel about one answer."""

    panel: int
    """Index of the panel in the task."""

    document: int
    pipeline: str
    replies: Sequence[MemberReplies] = ()
    failure: str = ""
    """Why nothing could be asked or parsed; empty otherwise."""

    is_retryable: bool = False
    """Whether the document is judged again when the run is resumed, because the failure may not repeat."""


ReadReplies = Callable[[PlannedTask, Sequence[JudgeReplies]], Awaitable[Sequence[PanelDecision]]]


def read_replies(panel: JudgePanel, replies: JudgeReplies) -> PanelDecision:
    """Turn the replies of a panel into a decision."""
    document, pipeline = replies.document, replies.pipeline
    if replies.failure:
        return panel.leave_unscored(replies.failure, document, pipeline, failed=replies.is_retryable)
    try:
        return panel.decide(replies.replies, document=document, pipeline=pipeline)
    except Exception:  # noqa: BLE001 - a judge may come from a plugin
        return panel.leave_unscored(traceback.format_exc(limit=-3), document, pipeline)


async def ask_judges(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    judged: JudgedBatch,
    services: Services,
    executor: Executor,
    read_all: ReadReplies,
) -> None:
    """Ask the panels and add their verdicts to `judged`. Unscored documents are skipped."""
    task, panels = planned.task, planned.scorer.panels
    scored = {document for document, outcome, _ in judged.outcomes if outcome not in _WITHOUT_ANSWER}
    by_index = {document.document.index: document for document in documents}
    answers = [answer for answer in judged.answers if answer.document in scored]
    if planned.spec.output_type.is_agent:  # each repeat is an attempt of its own
        answers = await executor.run(lambda: split_attempts(planned, by_index, answers))
    pairs = [(index, answer) for answer in answers for index in range(len(panels))]
    inputs = await executor.run(  # may call the task's code
        lambda: [
            _build_input(task, panels[index], by_index[answer.document], answer) for index, answer in pairs
        ]
    )
    replies = await asyncio.gather(
        *(
            _ask_panel(panels, index, judge_input, answer, services, task.name)
            for (index, answer), judge_input in zip(pairs, inputs, strict=True)
        )
    )
    lost: dict[int, tuple[str, str]] = {}
    decisions = list(zip(pairs, await read_all(planned, replies), strict=True))
    if planned.spec.output_type.is_agent:
        decisions = average_attempts(planned, decisions, judged)
    for (_, answer), decision in decisions:
        judged.verdicts += decision.verdicts
        why = decision.failed or next(
            (verdict.why for verdict in decision.verdicts if isinstance(verdict, Unscored)), ""
        )
        if decision.failed or (why and answer.document not in lost):
            lost[answer.document] = (JUDGE_FAILED if decision.failed else "unscored", why)
    judged.outcomes = [
        (document, *lost.get(document, (outcome, why))) for document, outcome, why in judged.outcomes
    ]


def _build_input(task: Task, panel: JudgePanel, opened: OpenDocument, answer: Answer) -> JudgeInput | str:
    """Build the judge input, or return a string with the reason if that fails."""
    try:
        return build_judge_input(
            task, panel, opened.document, opened.requests, answer.values[0], opened.target, opened.judge_media
        )
    except AssayError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - user code
        return traceback.format_exc(limit=-3)


async def _ask_panel(
    panels: Sequence[JudgePanel],
    index: int,
    judge_input: JudgeInput | str,
    answer: Answer,
    services: Services,
    task: str,
) -> JudgeReplies:
    document, pipeline = answer.document, answer.pipeline
    replies: Sequence[MemberReplies] = ()
    why = judge_input if isinstance(judge_input, str) else ""
    if not isinstance(judge_input, str):
        try:
            replies = await panels[index].collect_replies(judge_input, services, task=task, document=document)
        except TaskError as error:  # its prompt cannot be rendered for this document
            why = str(error)
        except AssayError:
            raise  # concerns the run: the judge cannot be opened or the journal cannot be written
        except Exception:  # noqa: BLE001 - a judge may come from a plugin
            why = traceback.format_exc(limit=-3)
    return JudgeReplies(panel=index, document=document, pipeline=pipeline, replies=replies, failure=why)
