"""A model instead of a run: of each task, what the newest finished run of that model says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import UnknownName
from assay.core.verdicts import Estimate
from assay.store.finding import list_runs
from assay.store.run_sheets import RunSheets
from assay.store.sheets import Kind, Look, Sheet, SheetSource

__all__ = ["ModelSheets", "speaker_of"]

_STATES = ("finished", "with failures")


class ModelSheets:
    """The newest runs of a model, one for each task it was ever asked."""

    def __init__(self, model: str, by_task: Mapping[str, RunSheets]) -> None:
        self.name = self.model = model
        self._by_task = dict(by_task)

    @classmethod
    def find(
        cls, model: str, folders: Sequence[str | Path], open_run: Callable[[Path], RunSheets]
    ) -> ModelSheets:
        """The runs of a model, by the name under which runs are listed.

        Raises:
            UnknownName: No finished run is of such a model.
        """
        summaries = [one for one in list_runs(folders) if one.state in _STATES]
        own = [one for one in summaries if one.model == model]
        if not own:
            known = sorted({one.model for one in summaries})
            raise UnknownName(
                f"no finished run is of a model called `{model}`",
                where="--models",
                hint=f"there are runs of: {', '.join(known[:10]) or 'none'}",
            )
        opened: dict[Path, RunSheets] = {}
        by_task: dict[str, RunSheets] = {}
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
        """Which run speaks for which task."""
        return {task: source.name for task, source in self._by_task.items()}

    @property
    def facts(self) -> dict[str, Any]:
        """Nothing that goes for all its runs: `speaker` knows more."""
        return {}

    def sheet(self, task: str, kind: Kind | None = None) -> Sheet:
        """That of the run that speaks for the task."""
        return self.speaker(task).sheet(task, kind)

    def numbers(self) -> list[Estimate]:
        return [one for task, source in self._by_task.items() for one in source.numbers() if one.task == task]

    def field(self, task: str, name: str) -> list[Any]:
        return self.speaker(task).field(task, name)

    def field_names(self, task: str) -> list[str]:
        return self.speaker(task).field_names(task)

    def looks(self, task: str, documents: Sequence[int]) -> dict[int, Look]:
        return self.speaker(task).looks(task, documents)

    def close(self) -> None:
        for source in self._by_task.values():
            source.close()

    def speaker(self, task: str) -> RunSheets:
        """The run that speaks for a task."""
        if task not in self._by_task:
            raise UnknownName(
                f"the model `{self.name}` has no run of `{task}`", hint=f"it has: {', '.join(self.tasks)}"
            )
        return self._by_task[task]


def speaker_of(source: SheetSource, task: str) -> SheetSource:
    """Who says what a task was asked with: a run itself, or the run that speaks for a model."""
    return source.speaker(task) if isinstance(source, ModelSheets) else source
