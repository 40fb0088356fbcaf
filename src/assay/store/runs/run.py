"""A stored run: its folder, journal and results. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from assay.core.errors import UserError
from assay.core.records.verdicts import Estimate
from assay.store.database.locks import is_locked
from assay.store.database.tables import RETRIED_LIST
from assay.store.documents.records import read_document_records
from assay.store.documents.samples import read_samples
from assay.store.integrity.damage import build_damage_error, describe_damage
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.journal.server_identity import count_server_identities
from assay.store.runs.usage import (
    TruncationTotals,
    UsageTotals,
    count_truncated_prompts,
    sum_run_usage,
    sum_usage_by_judge,
    sum_usage_by_task,
)

__all__ = ["SCORINGS_FOLDER", "Run"]

SCORINGS_FOLDER = "scorings"
"""The subfolder of a run with its rescorings, by number."""


@dataclass(eq=False)
class Run:
    """A run on disk, finished or not."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        if not (self.folder / JOURNAL_FILE).is_file():
            raise UserError(
                f"there is no run in `{self.folder}`", hint=f"a run folder contains {JOURNAL_FILE}"
            )

    @cached_property
    def journal(self) -> Journal:
        return Journal.open_readonly(self.folder)

    def check_damage(self) -> None:
        """Verify every record, even if the file seems unchanged.

        Raises:
            CorruptStore: The journal is damaged.
        """
        path = self.folder / JOURNAL_FILE
        if not is_locked(self.folder) and (damage := describe_damage(path, thorough=True)):
            raise build_damage_error(path, damage)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts about the run: options, plan, model identity, versions, times."""
        return self.journal.read_facts()

    @property
    def id(self) -> str:
        """The id of the run; the number of a rescoring."""
        return self.folder.name

    @property
    def finished(self) -> bool:
        """Whether the run ended and its estimates are stored."""
        return "ended" in self.facts

    @property
    def complete(self) -> bool:
        """Whether the run ended without failed documents that could be retried."""
        if not self.finished:
            return False
        ((failed,),) = self.journal.query(
            f"SELECT count(*) FROM main.outcomes WHERE outcome IN {RETRIED_LIST}"
        )
        return not failed

    @property
    def model(self) -> str:
        return str(self.facts.get("model", ""))

    @cached_property
    def estimates(self) -> list[Estimate]:
        """All estimates: tasks in plan order, then groups."""
        tasks = {name: index for index, name in enumerate((*self.tasks, *self.groups))}

        def sort_key(estimate: Estimate) -> tuple[int, int, int]:
            facts = self.tasks.get(estimate.task, {})
            pipelines, metrics = facts.get("pipelines", []), facts.get("metrics", [])
            return (
                tasks.get(estimate.task, len(tasks)),
                pipelines.index(estimate.pipeline) if estimate.pipeline in pipelines else len(pipelines),
                metrics.index(estimate.metric) if estimate.metric in metrics else len(metrics),
            )

        return sorted(self.journal.read_estimates(), key=sort_key)

    @property
    def tasks(self) -> dict[str, Any]:
        """Facts about each task, in plan order."""
        return self.facts.get("tasks", {})  # type: ignore[no-any-return]

    @property
    def groups(self) -> dict[str, Any]:
        """Facts about each group."""
        return self.facts.get("groups", {})  # type: ignore[no-any-return]

    @cached_property
    def results(self) -> dict[str, dict[str, Any]]:
        """Results with the keys of lm-eval: `results[task]["metric,filter"]`, `"metric_stderr,filter"`."""
        numbers: dict[str, dict[str, Any]] = {}
        for estimate in self.estimates:
            entry = numbers.setdefault(estimate.task, {})
            entry[f"{estimate.metric},{estimate.pipeline}"] = estimate.value
            entry[f"{estimate.metric}_stderr,{estimate.pipeline}"] = (
                "N/A" if estimate.stderr is None else estimate.stderr
            )
        return numbers

    @property
    def tasks_without_documents(self) -> list[str]:
        """The tasks of an imported run whose files contain aggregate scores only."""
        return [name for name, facts in self.tasks.items() if facts.get("aggregates_only")]

    def outcomes(self, task: str) -> dict[str, int]:
        """Return the number of documents of a task by ending (see `ENDINGS`)."""
        return self.journal.count_outcomes(task)

    def failed_requests(self) -> tuple[int, int]:
        """Return the number of failed requests and of all requests, those of judges included.

        A document whose prompt could not be rendered counts as one request.
        """
        failed, total = self.journal.count_failed_requests()
        counts = self.judges.values()
        return failed + sum(one["failed"] for one in counts), total + sum(one["requests"] for one in counts)

    @cached_property
    def judges(self) -> dict[str, dict[str, int]]:
        """Counts by judge: requests, cached, failed, input and output tokens.

        A request shared by several documents counts once.
        """
        rows = self.journal.query(
            "SELECT judge, count(*), sum(s.source = 'cache'), sum(s.fingerprint IS NULL), sum(s.input_tokens),"
            " sum(s.output_tokens) FROM (SELECT DISTINCT judge, fingerprint FROM main.judge_requests) r"
            " LEFT JOIN main.responses s ON s.fingerprint = r.fingerprint GROUP BY judge ORDER BY judge"
        )
        names = ("requests", "cached", "failed", "input_tokens", "output_tokens")
        return {
            judge: {name: int(number or 0) for name, number in zip(names, numbers, strict=True)}
            for judge, *numbers in rows
        }

    @cached_property
    def truncated_prompts(self) -> dict[str, TruncationTotals]:
        """The prompts that were shortened because they exceed the context length, by task."""
        return count_truncated_prompts(self.journal)

    @cached_property
    def spent(self) -> UsageTotals:
        """Token usage and cost of the model in this run."""
        return sum_run_usage(self.journal)

    @cached_property
    def spent_by_task(self) -> dict[str, UsageTotals]:
        """The same by task; empty if no response reports its usage."""
        if not self.spent.has_usage:
            return {}
        return (
            {next(iter(self.tasks)): self.spent} if len(self.tasks) == 1 else sum_usage_by_task(self.journal)
        )

    @cached_property
    def spent_by_judge(self) -> dict[str, UsageTotals]:
        """The same by judge, not included in the usage of the model."""
        return sum_usage_by_judge(self.journal)

    @property
    def usage(self) -> dict[str, Any]:
        """Usage and cost of the model, each task and each judge, as exported; empty if unknown."""
        if not self.spent.has_usage and not self.spent_by_judge:
            return {}
        return {
            **self.spent.to_json(),
            "tasks": {task: spent.to_json() for task, spent in self.spent_by_task.items()},
            "judges": {judge: spent.to_json() for judge, spent in self.spent_by_judge.items()},
            "billing": self.facts.get("billing", {}),
            "probe_calls": self.facts.get("probe_calls", {}),
        }

    @property
    def served(self) -> dict[str, dict[str, int | None]]:
        """Server identities of the model (empty name) and of each judge; see `count_server_identities`."""
        with self.journal.report_decode_errors():
            return count_server_identities(self.journal.query)

    def judgements(self, task: str) -> Iterator[dict[str, Any]]:
        """Yield the judge requests of a task and their replies (None if failed), in document order."""
        rows = self.journal.query(
            "SELECT r.document, r.judge, r.repeat, r.prompt, s.text FROM judge_requests r"
            " LEFT JOIN responses s ON s.fingerprint = r.fingerprint WHERE r.task = ?"
            " ORDER BY r.document, r.judge, r.number, r.repeat",
            (task,),
        )
        for document, judge, repeat, prompt, reply in rows:
            yield {"document": document, "judge": judge, "repeat": repeat, "prompt": prompt, "reply": reply}

    def samples(self, task: str) -> Iterator[dict[str, Any]]:
        """Yield one row per scored document and filter pipeline, with the keys of lm-evaluation-harness."""
        with self.journal.report_decode_errors():
            yield from read_samples(self.journal, task)

    def records(self, task: str, documents: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
        """Yield one record per document, failed ones included: requests, responses, answers, verdicts and ending.

        `documents`: only the documents with these numbers.
        """
        with self.journal.report_decode_errors():
            yield from read_document_records(self.journal, task, documents)

    def scorings(self) -> list[Self]:
        """Return the rescorings of the run, the oldest first, each as a run."""
        numbers = sorted(
            int(path.name)
            for path in (self.folder / SCORINGS_FOLDER).glob("*")
            if path.name.isdecimal() and (path / JOURNAL_FILE).is_file()
        )
        return [type(self)(self.folder / SCORINGS_FOLDER / str(number)) for number in numbers]

    def scored(self, number: int | None) -> Self:
        """Return a scoring of the run: 0 is the original one, 1 the first rescoring, None the latest.

        Raises:
            UserError: There is no such scoring.
        """
        found = [self, *self.scorings()]
        by_name = {0: self, **{int(one.folder.name): one for one in found[1:]}}
        if number is None:
            return next((one for one in reversed(found) if one is self or one.finished), self)
        if number not in by_name:
            raise UserError(
                f"the run has no scoring {number}",
                where=str(self.folder),
                hint=f"available: {', '.join(map(str, by_name))}",
            )
        return by_name[number]

    def close(self) -> None:
        if "journal" in self.__dict__:
            self.journal.close()
            del self.__dict__["journal"]  # reopened on the next access

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"
