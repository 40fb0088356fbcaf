"""Run all checks of one task in order, skipping those that an earlier error makes impossible."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from assay.checks.cluster_columns import check_cluster_columns
from assay.checks.config_values import check_config_values
from assay.checks.data import DataChecker
from assay.checks.documents import check_documents
from assay.checks.fewshot import check_example_pool, check_example_source
from assay.checks.filters import check_filters
from assay.checks.findings import Finding, Findings, collect_errors
from assay.checks.functions import FunctionChecker
from assay.checks.generation import check_dialogue_keys, check_generation
from assay.checks.groups import CheckJob, ReportedMetrics
from assay.checks.scoring import check_scoring, list_metric_names
from assay.checks.task_file import PartialTask, read_partial_task
from assay.checks.templates import check_templates
from assay.checks.variants import check_variants
from assay.core.options.run_spec import RunSpec
from assay.core.records.specs import TaskSpec
from assay.tasks.files.helper_functions import iterate_import_draws, may_draw_at_random
from assay.tasks.task import Task
from assay.user_code.random_state import LOOKUPS_BEFORE_PROMPTS, LoadingRandomState, TaskRandomState

__all__ = ["CheckOptions", "CheckResult", "TaskChecker"]


_QUOTED = re.compile(r"`([^`]+)`")
_BLOCKING_KINDS = frozenset(("package", "parameters", "rounds", "template"))
"""Kinds of errors after which documents are not rendered, because each document would repeat the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How thoroughly to check."""

    data: bool = True
    """Whether to open datasets; if not, only checks that need no documents run."""

    data_root: str | None = None
    allow_data_outside: bool = False
    """Whether data files may be outside the folder of the task, `data_root` and the working directory."""

    documents: int | None = 5
    """Number of documents to render per task; None: all."""

    helper_timeout_s: float = 60.0
    """Time limit for task code, per document; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The findings of a task and the metrics it reports."""

    findings: tuple[Finding, ...]
    reported_metrics: ReportedMetrics | None
    looked_at: int = 0
    """Number of documents that were rendered."""

    total: int = 0
    """Number of documents of the task; 0 if its data was not opened."""


class TaskChecker:
    """Checks tasks, remembering broken helper files and unavailable datasets between them."""

    def __init__(self, options: CheckOptions) -> None:
        self.options = options
        self._functions = FunctionChecker()
        self._looked_at = self._total = 0
        self._data = DataChecker(options.data_root, allow_data_outside=options.allow_data_outside)

    def check(self, job: CheckJob) -> CheckResult:
        """Check one task. Never raises an exception of task code."""
        findings = Findings()
        self._looked_at = self._total = 0
        with _silence_output():
            task = read_partial_task(job.source, job.overrides, job.task, findings)
            if task is not None:
                with collect_errors(findings, "check", task.spec):
                    self._check(task, findings)
        reports = None if task is None else _collect_reported_metrics(task)
        return CheckResult(
            findings=_drop_repeated(findings),
            reported_metrics=reports,
            looked_at=self._looked_at,
            total=self._total,
        )

    def _check(self, task: PartialTask, findings: Findings) -> None:
        spec = task.spec
        check_config_values(spec, findings)
        check_templates(spec, findings)
        broken = self._functions.check(spec, findings)
        if spec.config.get("class") is None:
            if task.has_valid("output_type", "filter_list"):
                check_scoring(spec, broken, findings)
                check_filters(spec, findings)
            if task.has_valid("output_type", "generation_kwargs", "repeats"):
                check_generation(spec, findings)
                check_dialogue_keys(spec, broken, findings)
            check_example_source(spec, findings)
        if spec.agent is not None and not broken.key_paths:
            _check_agent(spec, findings)
        can_read = task.has_valid("dataset", "split", "dataset_path", "dataset_kwargs")
        if self.options.data and can_read and not broken.key_paths:
            self._check_data(spec, findings)

    def _check_data(self, spec: TaskSpec, findings: Findings) -> None:
        if any(finding.severity == "error" and finding.kind in _BLOCKING_KINDS for finding in findings):
            return
        draws = may_draw_at_random(spec)
        loading = LoadingRandomState(RunSpec().seed)
        if draws:
            loading.start()
        task = self._data.open(spec, findings)
        if task is None:
            return
        with collect_errors(findings, "data", spec), ExitStack() as stack:
            if draws:
                stack.enter_context(_load_at_random(task, loading))
            self._total = len(task.rows)
            if check_example_pool(task, findings):
                self._looked_at = check_documents(task, self.options.documents, findings)
                self._total = max(self._total, self._looked_at)
                check_cluster_columns(task, findings)
                check_variants(task, self.options.documents, findings)


def _check_agent(spec: TaskSpec, findings: Findings) -> None:
    from assay.agents.setup import check_agent  # few tasks have an agent

    with collect_errors(findings, "agent", spec):
        check_agent(spec)


def _load_at_random(task: Task, loading: LoadingRandomState) -> AbstractContextManager[None]:
    """Load the documents with the draws of a run of this task alone; return a context that renders with its draws."""
    for path, draws in iterate_import_draws(task.spec):
        loading.import_file(path, draws)
    task.load_at_random()
    loading.keep()
    states = loading.start(LOOKUPS_BEFORE_PROMPTS)
    return TaskRandomState(RunSpec().seed, task.name, states).continue_rendering()


def _drop_repeated(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without a missing column that an error of a document names, too."""
    found = tuple(findings)
    errors = [one for one in found if one.kind == "document"]

    def is_repeated(finding: Finding) -> bool:
        names = set(_QUOTED.findall(finding.what))
        return finding.kind == "column" and any(
            error.where == finding.where and names & set(_QUOTED.findall(error.what)) for error in errors
        )

    return tuple(one for one in found if not is_repeated(one))


def _collect_reported_metrics(task: PartialTask) -> ReportedMetrics:
    spec = task.spec
    own_code = spec.process_results is not None or spec.config.get("class") is not None
    own_code = own_code or any(callable(entry.metric) for entry in spec.metrics)
    return ReportedMetrics(
        output_type=spec.output_type,
        metrics=frozenset(list_metric_names(spec)),
        pipelines=frozenset(pipeline.name for pipeline in spec.pipelines) or frozenset(("none",)),
        may_report_others=own_code or not task.has_valid("metric_list", "output_type"),
    )


class _NullStream(io.TextIOBase):
    """Discards all text; never closed, because libraries keep a reference to the stream."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def _silence_output() -> Iterator[None]:
    """Suppress what helper files and libraries print, log and warn."""
    disabled = logging.root.manager.disable
    null_stream = _NullStream()
    with redirect_stdout(null_stream), redirect_stderr(null_stream), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
