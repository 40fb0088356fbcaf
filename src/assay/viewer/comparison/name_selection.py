"""The tasks and metrics that several runs share, by the names that a user gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.core.errors import UnknownName
from assay.store.documents.score_tables import ScoreTableSource

__all__ = ["check_metric_names", "select_shared_tasks"]


def select_shared_tasks(sources: Sequence[ScoreTableSource], names: Sequence[str]) -> list[str]:
    """Return the named tasks of the runs, or all tasks that they share without names.

    Raises:
        UnknownName: One of the names is not a task of every run.
    """
    shared = [task for task in sources[0].tasks if all(task in source.tasks for source in sources)]
    unknown = [name for name in names if name not in shared]
    if unknown:
        which = {1: "the run", 2: "both runs"}.get(len(sources), "all runs")
        raise UnknownName(
            f"no task of {which} is called `{unknown[0]}`",
            where="--tasks",
            hint=f"available: {', '.join(shared) or 'none'}",
        )
    return [task for task in shared if not names or task in names]


def check_metric_names(names: Sequence[str], shared: Iterable[str]) -> None:
    """Check that two runs share the named metrics; `shared` are the metrics that they share in some task.

    Raises:
        UnknownName: One of the names is not a metric that the runs share.
    """
    known = list(dict.fromkeys(shared))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownName(
            f"no task of both runs has the metric `{unknown[0]}`",
            where="--metric",
            hint=f"available: {', '.join(known) or 'none'}",
        )
