"""`power`: what a benchmark of this size can show, and how large it would have to be, from runs that were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import BadOption, UserMistake
from assay.stats.intervals import design_effect
from assay.stats.power import Spread, detectable_effect, documents_needed, paired_spread
from assay.stats.repeats import repeats_of
from assay.store.sheets import Sheet, SheetSource
from assay.viewer.comparison.clusters import cluster_names
from assay.viewer.comparison.pairing import numbers_in, pair

__all__ = ["PowerOptions", "PowerRow", "plan_power"]

Floats = NDArray[np.float64]

EFFECTS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Differences in points for which the documents needed are shown where none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOptions:
    """What is to be found out, and how surely."""

    effect: float | None = None
    """A difference, in points."""

    documents: int | None = None
    power: float = 0.8
    alpha: float = 0.05
    repeats: int = 1
    """Answers to each document, of either model."""

    correlation: float = 0.5
    """How alike two models find documents hard, where one run alone cannot tell."""

    tasks: Sequence[str] = ()
    cluster_by: str = ""

    def __post_init__(self) -> None:
        for name, value in (("--power", self.power), ("--alpha", self.alpha)):
            if not 0 < value < 1:
                raise BadOption(f"{value:g} is not between 0 and 1", where=name)
        if self.repeats < 1 or (self.documents is not None and self.documents < 2):
            raise BadOption("it takes at least one answer to at least two documents")
        if self.effect is not None and self.effect <= 0:
            raise BadOption("a difference to be found is above 0", where="--effect")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """What one task can show."""

    task: str
    metric: str
    how: str
    """Where the spread comes from."""

    documents: int
    spread: float
    """Standard deviation of one document's difference, in points."""

    correlation: float | None
    design_effect: float
    detectable: float
    """The smallest difference that so many documents show, in points."""

    needed: tuple[tuple[float, int], ...]
    """(difference in points, documents it takes)."""

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def plan_power(sources: Sequence[SheetSource], options: PowerOptions) -> list[PowerRow]:
    """What each task of some pilot runs can show; without any, what a yes-or-no benchmark can at worst.

    One run tells how its scores vary, two how their difference does. Three or more are taken as repeats of one model:
    they tell what sampling adds.
    """
    if not sources:
        spread = Spread(between=paired_spread(0.25, 0.25, options.correlation))
        return [
            _row(
                "any",
                "right or wrong",
                "worst case",
                options.documents or 1000,
                spread,
                options,
                options.correlation,
            )
        ]
    shared = [task for task in sources[0].tasks if all(task in source.tasks for source in sources)]
    wanted = [task for task in shared if not options.tasks or task in options.tasks]
    if not wanted:
        raise UserMistake(
            "the runs have no such task in common", hint=f"they share: {', '.join(shared) or 'none'}"
        )
    rows = [row for task in wanted if (row := _task_row(task, sources, options)) is not None]
    if not rows:
        raise UserMistake("no task of the runs has scores of single documents")
    return rows


def _task_row(task: str, sources: Sequence[SheetSource], options: PowerOptions) -> PowerRow | None:
    sheets = [sources[0].sheet(task)]
    sheets += [source.sheet(task, sheets[0].kind) for source in sources[1:]]
    if any(sheet.kind != sheets[0].kind for sheet in sheets):
        sheets = [source.sheet(task, "files") for source in sources]
    table, places = _table(sheets)
    if len(places) < 2:
        return None
    whole, _ = cluster_names(sources[0], sheets[0], pair(sheets[0], sheets[0]), options.cluster_by)
    names = None if whole is None else [whole[place] for place in places]
    metric = next(iter(sheets[0].columns.values())).metric
    count = options.documents or table.shape[1]
    compared: Floats = table[1] - table[0] if len(table) == 2 else np.asarray(table.mean(axis=0))
    effect = design_effect(compared, names) if names else 1.0
    if len(table) == 1:
        variance = _score_variance(table[0])
        spread = Spread(between=paired_spread(variance, variance, options.correlation), design_effect=effect)
        how = f"one run, correlation {options.correlation:g} assumed"
        return _row(task, metric, how, count, spread, options, None)
    if len(table) == 2:
        variance = _difference_variance(table[0], table[1])
        constant = table.std(axis=1).min() == 0
        correlation = None if constant else float(np.corrcoef(table[0], table[1])[0][1])
        return _row(
            task,
            metric,
            "two runs",
            count,
            Spread(between=variance, design_effect=effect),
            options,
            correlation,
        )
    found = repeats_of(table.T)
    spread = Spread(
        between=paired_spread(found.between, found.between, options.correlation),
        within_first=found.within,
        within_second=found.within,
        repeats_first=options.repeats,
        repeats_second=options.repeats,
        design_effect=effect,
    )
    how = f"{len(table)} repeats, correlation {options.correlation:g} assumed"
    return _row(task, metric, how, count, spread, options, None)


def _table(sheets: Sequence[Sheet]) -> tuple[Floats, list[int]]:
    """Scores in points, a row for each run and a column for each document that all have; and which documents those are."""
    columns = [numbers_in(next(iter(sheet.columns.values()))) for sheet in sheets if sheet.columns]
    if len(columns) < len(sheets) or any(column is None for column in columns):
        return np.empty((len(sheets), 0)), []
    places = np.arange(len(sheets[0].documents))
    rows = {0: places}
    for at, sheet in enumerate(sheets[1:], 1):
        pairing = pair(sheets[0], sheet)
        found = np.full(len(places), -1)
        found[pairing.first] = pairing.second
        rows[at] = found
    kept = np.all([row >= 0 for row in rows.values()], axis=0)
    table = np.array([np.asarray(columns[at])[row[kept]] for at, row in rows.items()])
    scored = ~np.isnan(table).any(axis=0)
    return 100 * table[:, scored], places[kept][scored].tolist()


def _score_variance(scores: Floats) -> float:
    """Of one document's score. Where all are right or wrong, two of each are thought to be there besides: a pilot in which
    nothing varied does not show that nothing ever will."""
    if not np.isin(scores, (0.0, 100.0)).all():
        return float(scores.var(ddof=1))
    share = (float((scores > 0).sum()) + 2) / (len(scores) + 4)
    return 1e4 * share * (1 - share)


def _difference_variance(first: Floats, second: Floats) -> float:
    """Of one document's difference, by the same thought: one more document flips in either direction."""
    if not np.isin((first, second), (0.0, 100.0)).all():
        return float((second - first).var(ddof=1))
    size = len(first) + 2
    up, down = (float((second > first).sum()) + 1) / size, (float((second < first).sum()) + 1) / size
    return 1e4 * (up + down - (up - down) ** 2)


def _row(
    task: str,
    metric: str,
    how: str,
    count: int,
    spread: Spread,
    options: PowerOptions,
    correlation: float | None,
) -> PowerRow:
    if task == "any":
        spread = Spread(between=10_000 * spread.between)
    chances = {"power": options.power, "alpha": options.alpha}
    wanted = EFFECTS if options.effect is None else (options.effect,)
    return PowerRow(
        task=task,
        metric=metric,
        how=how,
        documents=count,
        spread=spread.variance**0.5,
        correlation=correlation,
        design_effect=spread.design_effect,
        detectable=detectable_effect(count, spread, **chances),
        needed=tuple((effect, max(2, documents_needed(effect, spread, **chances))) for effect in wanted),
    )
