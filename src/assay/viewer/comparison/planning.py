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
from assay.store.sheets import Column, Sheet, SheetSource
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

    One run tells how its scores vary, two how their difference does; and where their documents were answered several
    times, also what sampling adds. Three or more are repeats of one model, and tell the same.

    Raises:
        UserMistake: They have nothing in common, or three or more are of different models.
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
    models = list(dict.fromkeys(source.model for source in sources))
    if len(sources) > 2 and len(models) > 1:
        raise UserMistake(
            f"three or more runs are repeats of one model, and these are of {', '.join(models)}",
            hint="two runs tell how two models differ",
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
    sampled = [_sampled(sheet) for sheet in sheets] if len(sheets) < 3 else [None]
    metric = next(iter(sheets[0].columns.values())).metric if sheets[0].columns else ""
    known = [one for one in sampled if one is not None]
    with_repeats = len(known) == len(sampled)
    table, places = _table(sheets, ".mean" if with_repeats else "")
    if len(places) < 2:
        return None
    whole, _ = cluster_names(sources[0], sheets[0], pair(sheets[0], sheets[0]), options.cluster_by)
    names = None if whole is None else [whole[place] for place in places]
    compared: Floats = table[1] - table[0] if len(table) == 2 else np.asarray(table.mean(axis=0))
    effect = max(1.0, design_effect(compared, names)) if names else 1.0
    pilot = _Pilot(table, known if with_repeats else [], effect, options)
    spread, how = pilot.spread()
    count = options.documents or table.shape[1]
    return _row(task, metric, how, count, spread, options, pilot.correlation)


@dataclass(frozen=True, slots=True)
class _Pilot:
    """What pilot runs say of one task, in points: a row of scores for each run."""

    table: Floats
    sampled: Sequence[tuple[float, int]]
    """Of each run with repeats the variance between them, and how many there were; empty without."""

    design_effect: float
    options: PowerOptions

    @property
    def correlation(self) -> float | None:
        if len(self.table) != 2 or self.table.std(axis=1).min() == 0:
            return None
        return float(np.corrcoef(self.table[0], self.table[1])[0][1])

    def spread(self) -> tuple[Spread, str]:
        """How differences vary, and where that is known from."""
        if len(self.table) == 2:
            return self._of_two()
        assumed = self.options.correlation
        if len(self.table) > 2:
            found = repeats_of(self.table.T)
            between, within, how = found.between, found.within, f"{len(self.table)} runs as repeats"
        elif self.sampled:
            ((within, count),) = self.sampled
            between = max(0.0, float(self.table[0].var(ddof=1)) - within / count)
            how = f"one run, {count} answers to each document"
        else:
            between, within, how = _score_variance(self.table[0]), 0.0, "one run"
        spread = self._spread(paired_spread(between, between, assumed), within, within)
        return spread, f"{how}, correlation {assumed:g} assumed"

    def _of_two(self) -> tuple[Spread, str]:
        if not self.sampled:
            return self._spread(_difference_variance(self.table[0], self.table[1]), 0.0, 0.0), "two runs"
        noise = sum(within / count for within, count in self.sampled)
        between = max(0.0, float((self.table[1] - self.table[0]).var(ddof=1)) - noise)
        (first, count), (second, other) = self.sampled
        return self._spread(between, first, second), f"two runs, {count} and {other} answers to each document"

    def _spread(self, between: float, first: float, second: float) -> Spread:
        return Spread(
            between=between,
            within_first=first,
            within_second=second,
            repeats_first=self.options.repeats,
            repeats_second=self.options.repeats,
            design_effect=self.design_effect,
        )


def _sampled(sheet: Sheet) -> tuple[float, int] | None:
    """The variance between answers to one document, in points, and how many answers there were; None without repeats."""
    main = next(iter(sheet.columns.values()), None)
    if main is None:
        return None
    prefix = f"{main.metric}.maj@"
    for pipeline, metric in sheet.columns:
        if pipeline == main.pipeline and metric.startswith(prefix):
            within = numbers_in(sheet.columns[pipeline, f"{main.metric}.within"])
            count = int(metric.removeprefix(prefix))
            return None if within is None else (1e4 * float(np.nanmean(within)), count)
    return None


def _table(sheets: Sequence[Sheet], name: str = "") -> tuple[Floats, list[int]]:
    """Scores in points, a row for each run and a column for each document that all have; and which documents those are.
    `name` is what stands behind the metric's: `.mean` for the means of repeats."""
    columns = [numbers_in(_main_column(sheet, name)) for sheet in sheets if sheet.columns]
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


def _main_column(sheet: Sheet, name: str) -> Column:
    main = next(iter(sheet.columns.values()))
    return sheet.columns[main.pipeline, f"{main.metric}{name}"]


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
