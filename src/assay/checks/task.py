"""All checks of one task, one after the other; what cannot be done after a fault is left out."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from assay.checks.data import DataCheck
from assay.checks.dialogues import check_dialogue_keys
from assay.checks.documents import check_documents
from assay.checks.examples import check_example_pool, check_example_source
from assay.checks.filters import check_filters
from assay.checks.findings import Finding, Findings, guarded
from assay.checks.functions import FunctionCheck
from assay.checks.generation import check_generation
from assay.checks.group_metrics import Reports
from assay.checks.groups import Job
from assay.checks.keys import check_keys
from assay.checks.reading import Reading, read_spec
from assay.checks.scoring import check_scoring, metric_names
from assay.checks.texts import check_texts
from assay.core.specs import TaskSpec

__all__ = ["CheckOptions", "Outcome", "TaskCheck"]


_SAID = frozenset(("package", "parameters", "rounds", "template"))
"""Errors after which no document can be rendered: all of them would say it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How thoroughly to look."""

    data: bool = True
    """Whether to open datasets; without, everything that needs no document is checked."""

    data_root: str | None = None
    documents: int = 5
    """How many documents of each task are rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found about a task, and what it reports."""

    findings: tuple[Finding, ...]
    reports: Reports | None


class TaskCheck:
    """Checks tasks, remembering which helper files and datasets cannot be had."""

    def __init__(self, options: CheckOptions) -> None:
        self._options = options
        self._functions = FunctionCheck()
        self._data = DataCheck(options.data_root)

    def check(self, job: Job) -> Outcome:
        """Everything that can be found about one task. Never raises, whatever the task's code does."""
        findings = Findings()
        with _silence():
            reading = read_spec(job.source, job.overrides, job.task, findings)
            if reading is not None:
                with guarded(findings, "check", reading.spec):
                    self._check(reading, findings)
        reports = None if reading is None else _reports(reading)
        return Outcome(findings=tuple(findings), reports=reports)

    def _check(self, reading: Reading, findings: Findings) -> None:
        spec = reading.spec
        check_keys(spec, findings)
        check_texts(spec, findings)
        broken = self._functions.check(spec, findings)
        if spec.config.get("class") is None:
            if reading.reads("output_type", "filter_list"):
                check_scoring(spec, broken, findings)
                check_filters(spec, findings)
            if reading.reads("output_type", "generation_kwargs", "repeats"):
                check_generation(spec, findings)
                check_dialogue_keys(spec, broken, findings)
            check_example_source(spec, findings)
        can_read = reading.reads("dataset", "split", "dataset_path", "dataset_kwargs")
        if self._options.data and can_read and not broken.places:
            self._check_data(spec, findings)

    def _check_data(self, spec: TaskSpec, findings: Findings) -> None:
        if any(finding.severity == "error" and finding.kind in _SAID for finding in findings):
            return
        task = self._data.open(spec, findings)
        if task is None:
            return
        with guarded(findings, "data", spec):
            _ = len(task.rows)
            if check_example_pool(task, findings):
                check_documents(task, self._options.documents, findings)


def _reports(reading: Reading) -> Reports:
    spec = reading.spec
    own_code = spec.process_results is not None or spec.config.get("class") is not None
    own_code = own_code or any(callable(entry.metric) for entry in spec.metrics)
    return Reports(
        metrics=frozenset(metric_names(spec)),
        pipelines=frozenset(pipeline.name for pipeline in spec.pipelines) or frozenset(("none",)),
        others=own_code or not reading.reads("metric_list", "output_type"),
    )


class _Nowhere(io.TextIOBase):
    """Takes everything and keeps nothing; never closed, because libraries hold on to the stream they found."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def _silence() -> Iterator[None]:
    """Helper files and libraries print, log and warn; the report is all that should be seen."""
    disabled = logging.root.manager.disable
    nowhere = _Nowhere()
    with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
