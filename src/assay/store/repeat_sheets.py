"""What repeats say of each document, as further columns of a sheet: `exact_match.pass@4` beside `exact_match`."""

from __future__ import annotations

from collections.abc import Sequence

from assay.core.verdicts import Estimate
from assay.stats.repeats import RepeatTable, repeat_numbers
from assay.store.runs import Run
from assay.store.sheets import Column

__all__ = ["repeat_columns", "repeat_estimates"]


def repeat_columns(run: Run, task: str, documents: Sequence[int]) -> dict[tuple[str, str], Column]:
    """The columns of a task that was asked with repeats; none for others, which costs nothing."""
    if not run.facts.get("repeats"):
        return {}
    directions = {
        (one.pipeline, one.metric): one.higher_is_better for one in run.estimates if one.task == task
    }
    columns = {}
    places = {document: at for at, document in enumerate(documents)}
    for (pipeline, metric), table in RepeatTable.tables(run.journal.repeats(task)).items():
        for name, numbers in repeat_numbers(table).items():
            values: list[float | None] = [None] * len(documents)
            for document, number in zip(table.documents, numbers.tolist(), strict=True):
                if document in places:
                    values[places[document]] = number
            key = (pipeline, f"{metric}.{name}")
            columns[key] = Column(
                pipeline=pipeline,
                metric=key[1],
                values=values,
                aggregation="mean",
                higher_is_better=directions.get((pipeline, metric)),
            )
    return columns


def repeat_estimates(run: Run) -> list[Estimate]:
    """The same numbers over all documents."""
    directions = {(one.task, one.pipeline, one.metric): one.higher_is_better for one in run.estimates}
    return [
        Estimate(
            task=about["task"],
            metric=f"{about['metric']}.{name}",
            pipeline=about["pipeline"],
            value=number["value"],
            stderr=number["stderr"],
            method="mean" if number["stderr"] is not None else "",
            interval=None if number["interval"] is None else (number["interval"][0], number["interval"][1]),
            scored=about["documents"],
            higher_is_better=directions.get((about["task"], about["pipeline"], about["metric"])),
        )
        for about in run.facts.get("repeats", ())
        for name, number in about["numbers"].items()
    ]
