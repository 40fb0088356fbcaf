"""A model as the source of a comparison: for each task, its newest finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import UnknownName
from assay.core.records.verdicts import Estimate
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import DigestKind, DocumentExcerpt, ScoreTable, ScoreTableSource
from assay.store.runs.lookup import list_runs

__all__ = ["ModelScoreTables", "find_source"]

_FINISHED_STATES = ("finished", "with failures")


class ModelScoreTables:
    """The newest finished run of a model for each task."""

    def __init__(self, model: str, by_task: Mapping[str, RunScoreTables]) -> None:
        self.name = self.model = model
        self._by_task = dict(by_task)

    @classmethod
    def find(
        cls, model: str, folders: Sequence[str | Path], open_run: Callable[[Path], RunScoreTables]
    ) -> ModelScoreTables:
        """Find the runs of a model by the name that `assay runs` lists.

        Raises:
            UnknownName: No finished run has this model.
        """
        summaries = [one for one in list_runs(folders) if one.state in _FINISHED_STATES]
        own = [one for one in summaries if one.model == model]
        if not own:
            known = sorted({one.model for one in summaries})
            raise UnknownName(
                f"no finished run of a model called `{model}`",
                where="--models",
                hint=f"models with finished runs: {', '.join(known[:10]) or 'none'}",
            )
        opened: dict[Path, RunScoreTables] = {}
        by_task: dict[str, RunScoreTables] = {}
        for summary in own:  # the newest first
            if fresh := [task for task in summary.tasks if task not in by_task]:
                opened[summary.folder] = open_run(summary.folder)
                by_task |= dict.fromkeys(fresh, opened[summary.folder])
        return cls(model, by_task)

    @property
    def tasks(self) -> list[str]:
        return list(self._by_task)

    @property
    def runs(self) -> dict[str, str]:
        """The name of the run of each task."""
        return {task: source.name for task, source in self._by_task.items()}

    @property
    def facts(self) -> dict[str, Any]:
        """Empty: runs of one model share no settings; see `find_run`."""
        return {}

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """Return the scores of the task's run."""
        return self.find_run(task).read_score_table(task, kind)

    def read_estimates(self) -> list[Estimate]:
        return [
            one
            for task, source in self._by_task.items()
            for one in source.read_estimates()
            if one.task == task
        ]

    def field(self, task: str, name: str) -> list[Any]:
        return self.find_run(task).field(task, name)

    def field_names(self, task: str) -> list[str]:
        return self.find_run(task).field_names(task)

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        return self.find_run(task).read_excerpts(task, documents)

    def close(self) -> None:
        for source in self._by_task.values():
            source.close()

    def find_run(self, task: str) -> RunScoreTables:
        """Return the run of a task."""
        if task not in self._by_task:
            raise UnknownName(
                f"the model `{self.name}` has no run of `{task}`", hint=f"it has: {', '.join(self.tasks)}"
            )
        return self._by_task[task]


def find_source(source: ScoreTableSource, task: str) -> ScoreTableSource:
    """Return the run that holds a task's settings: the source itself, or the model's run of this task."""
    return source.find_run(task) if isinstance(source, ModelScoreTables) else source
