"""Judge documents in a worker process, perhaps on another machine: jobs in, results out.

The worker loads the task as the driver did and compares digests; it judges one document at a time with the same seeds, and
executes programs in its own sandbox. It cannot ask judges: a document whose code calls a judge is returned to the driver.
Replies of LLM judges, which the driver received, are parsed here.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn, cast

from assay.core.errors import InvalidOption
from assay.core.options.run_spec import RunSpec
from assay.core.program_executor import use_executor
from assay.core.records.programs import IsolationReport
from assay.engine.judging.context import DocumentJudgeContext, JudgeContext, use_judge_context
from assay.engine.judging.documents import judge_documents
from assay.engine.judging.llm_judges import JudgeReplies, read_replies
from assay.engine.judging.repeats import judge_repeats
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.plan import plan_task_in_worker
from assay.engine.planning.records import PlannedTask
from assay.engine.planning.setup.recorded_model import RecordedModel
from assay.sandboxes.program_runner import ProgramRunner, programs_for_run
from assay.scoring.judges.panel import PanelDecision, PanelMember
from assay.user_code.executor import DirectExecutor
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import enforce_time_limit

__all__ = ["JudgeJob", "JudgeJobResult", "deserialize", "run_judge_job", "run_reply_job", "serialize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeJob:
    """Documents of one task, and everything needed to judge them."""

    spec: RunSpec
    task: str
    digest: str
    """The digest of the task as the driver loaded it."""

    model: Mapping[str, Any]
    """Name and abilities of the model: prompts depend on them."""

    documents: Sequence[OpenDocument] = ()
    replies: Sequence[JudgeReplies] = ()
    """Instead of documents: replies of the task's judge panels."""

    panel_members: Mapping[str, tuple[PanelMember, ...]]
    """The judges of each metric that LLM judges score: the worker plans none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeJobResult:
    """The result of a job."""

    judged: Sequence[JudgedBatch | None]
    """One per document; None where the driver has to judge."""

    executed: int
    isolation: IsolationReport | None


@dataclass(slots=True, kw_only=True)
class _WorkerTask:
    """A task that is loaded in this process."""

    planned: PlannedTask
    programs: ProgramRunner
    random_state: TaskRandomState


_PICKLE_ERRORS = (pickle.PicklingError, TypeError, AttributeError)
"""What pickle raises for objects it cannot serialize."""

_worker_tasks: dict[tuple[str, str], _WorkerTask] = {}


def run_judge_job(data: bytes) -> bytes:
    """Judge the documents of a serialized job; return the serialized result."""
    job: JudgeJob = pickle.loads(data)
    with enforce_time_limit(job.spec.helper_timeout):
        task = _get_worker_task(job)
        before = task.programs.executed
        with programs_for_run(task.programs, job.spec):
            judged = [_judge_document(task, document) for document in job.documents]
    executed = task.programs.executed - before
    return serialize(JudgeJobResult(judged=judged, executed=executed, isolation=task.programs.isolation))


def run_reply_job(data: bytes) -> bytes:
    """Parse the judge replies of a serialized job; None in place of a decision that cannot be serialized."""
    job: JudgeJob = pickle.loads(data)
    with enforce_time_limit(job.spec.helper_timeout):
        panels = _get_worker_task(job).planned.scorer.panels
        return serialize([_keep_if_picklable(read_replies(panels[one.panel], one)) for one in job.replies])


def _keep_if_picklable(decision: PanelDecision) -> PanelDecision | None:
    try:
        serialize(decision)
    except _PICKLE_ERRORS:
        return None
    return decision


def _get_worker_task(job: JudgeJob) -> _WorkerTask:
    return _worker_tasks.get((job.task, job.digest)) or _load_worker_task(job)


def _load_worker_task(job: JudgeJob) -> _WorkerTask:
    """Load the task as the driver did.

    Raises:
        InvalidOption: The task or its data differ on this machine.
    """
    spec = replace(job.spec, replicas=1, ray=None, workers=0)
    programs = ProgramRunner(spec.sandbox, spec.sandbox_args, i_know=spec.i_know, max_concurrent=1)
    manifest = {"model": job.model, "options": {"token_logprobs": spec.token_logprobs}}
    with use_executor(programs):
        planned = plan_task_in_worker(spec, job.task, RecordedModel(manifest), programs)
    if planned.digest != job.digest:
        raise InvalidOption(
            f"the task `{job.task}` differs on {os.uname().nodename}",
            where="--workers",
            hint="task files and data must be the same on every machine",
        )
    planned.scorer.assign_judges(lambda judge: job.panel_members[judge.metric])
    random_state = TaskRandomState(spec.seed, job.task)
    task = _WorkerTask(planned=planned, programs=programs, random_state=random_state)
    _worker_tasks[job.task, job.digest] = task
    return task


def _judge_document(task: _WorkerTask, document: OpenDocument) -> JudgedBatch | None:
    """Judge one document; None where its code calls a judge or the result cannot be serialized."""
    worker_context = _WorkerJudgeContext()
    context = cast("JudgeContext", worker_context)
    try:
        judged = judge_documents(task.planned, [document], random_state=task.random_state, context=context)
        if task.planned.spec.repeats > 1:
            judge_repeats(task.planned, [document], judged, task.random_state, context)
        serialize(judged)
    except _PICKLE_ERRORS:
        return None
    return None if worker_context.has_judge_calls else judged


class _JudgeCallInWorker(BaseException):
    """The code of a document called a judge. Not an `Exception`, because helpers catch those."""


class _WorkerJudgeContext:
    """A judge context without judges."""

    def __init__(self) -> None:
        self.executor = DirectExecutor()
        self.tasks_with_judge_calls: set[str] = set()
        self.has_judge_calls = False
        """Whether code called a judge: its verdict does not count then."""

    @contextmanager
    def open_document(self, task: str, document: int) -> Iterator[DocumentJudgeContext]:
        """Make a context current in which every judge call fails."""
        context = cast("DocumentJudgeContext", _WorkerDocumentContext(self))
        with use_judge_context(context):
            yield context


class _WorkerDocumentContext:
    """Raises on every judge call."""

    failure = ""

    def __init__(self, run: _WorkerJudgeContext) -> None:
        self._run = run

    def resolve(self) -> _WorkerDocumentContext:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        self._run.has_judge_calls = True
        raise _JudgeCallInWorker(name)


class _Pickler(pickle.Pickler):
    dispatch_table = cast(Any, {MappingProxyType: lambda mapping: (dict, (dict(mapping),))})


def serialize(value: Any) -> bytes:
    """Serialize a job, a result or a part of one.

    Raises:
        Exception: What pickle raises for objects it cannot serialize.
    """
    stream = io.BytesIO()
    _Pickler(stream, 5).dump(value)
    return stream.getvalue()


def deserialize(data: bytes) -> Any:
    """Return what `serialize` was given."""
    return pickle.loads(data)
