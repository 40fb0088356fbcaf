"""`power`: the difference a benchmark of some size can detect, and the size needed for a difference, from pilot runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InvalidOption, UserError
from assay.stats.comparisons.power import (
    DifferenceVariance,
    compute_paired_variance,
    count_documents_needed,
    find_detectable_effect,
)
from assay.stats.intervals.confidence_intervals import compute_design_effect, encode_clusters
from assay.stats.intervals.repeats import analyse_repeats
from assay.store.documents.score_tables import ScoreColumn, ScoreTable, ScoreTableSource
from assay.viewer.comparison.clusters import read_clusters
from assay.viewer.comparison.name_selection import select_shared_tasks
from assay.viewer.comparison.pairing import pair_documents, scores_from_column

__all__ = ["PowerOptions", "PowerRow", "analyse_power"]

Floats = NDArray[np.float64]

DEFAULT_EFFECTS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Differences in percentage points to show if `--effect` is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOptions:
    """The difference to detect, and the error probabilities."""

    effect: float | None = None
    """A difference in percentage points."""

    documents: int | None = None
    power: float = 0.8
    alpha: float = 0.05
    repeats: int = 1
    """Answers per document of either model."""

    correlation: float = 0.5
    """The assumed correlation of two models' scores, if there is only one pilot run."""

    tasks: Sequence[str] = ()
    cluster_by: str = ""

    def __post_init__(self) -> None:
        for name, value in (("--power", self.power), ("--alpha", self.alpha)):
            if not 0 < value < 1:
                raise InvalidOption(f"{value:g} is not between 0 and 1", where=name)
        if self.repeats < 1 or (self.documents is not None and self.documents < 2):
            raise InvalidOption("power needs at least one repeat and two documents")
        if self.effect is not None and self.effect <= 0:
            raise InvalidOption("the effect must be greater than 0", where="--effect")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """The power of one task."""

    task: str
    metric: str
    how: str
    """How the standard deviation was estimated."""

    documents: int
    spread: float
    """The standard deviation of a document's difference, in percentage points."""

    correlation: float | None
    design_effect: float
    test: str
    """The test whose power this is."""

    detectable: float | None
    """The smallest difference that these documents detect, in percentage points; None if they detect none."""

    needed: tuple[tuple[float, int], ...]
    """(difference in percentage points, documents needed)."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def analyse_power(sources: Sequence[ScoreTableSource], options: PowerOptions) -> list[PowerRow]:
    """Compute the power of each task of some pilot runs; without any, the worst case of a right-or-wrong benchmark.

    One run estimates the variance of its scores, two that of their difference. Repeated answers also estimate the variance
    from sampling, and so do three or more runs, which must be repeats of one model.

    Raises:
        UnknownName: The runs do not share a task that is given by name.
        UserError: The runs share no task, or three or more runs are of different models.
    """
    if not sources:
        between = 1e4 * compute_paired_variance(0.25, 0.25, options.correlation)
        spread = DifferenceVariance(between=between, binary=options.repeats == 1)
        return [
            _build_row(
                "any",
                "right or wrong",
                "worst case",
                options.documents or 1000,
                spread,
                options,
                options.correlation,
            )
        ]
    wanted = select_shared_tasks(sources, options.tasks)
    if not wanted:
        raise UserError(
            "the runs share no task", hint="; ".join(f"{one.name}: {', '.join(one.tasks)}" for one in sources)
        )
    models = list(dict.fromkeys(source.model for source in sources))
    if len(sources) > 2 and len(models) > 1:
        raise UserError(
            f"three or more runs must be repeats of one model; these are of {', '.join(models)}",
            hint="pass two runs to compare two models",
        )
    rows = [row for task in wanted if (row := _analyse_task(task, sources, options)) is not None]
    if not rows:
        raise UserError("no task of the runs has document scores")
    return rows


def _analyse_task(task: str, sources: Sequence[ScoreTableSource], options: PowerOptions) -> PowerRow | None:
    tables = [sources[0].read_score_table(task)]
    tables += [source.read_score_table(task, tables[0].kind) for source in sources[1:]]
    if any(table.kind != tables[0].kind for table in tables):
        tables = [source.read_score_table(task, "files") for source in sources]
    sampled = [_find_repeat_variance(table) for table in tables] if len(tables) < 3 else [None]
    metric = next(iter(tables[0].columns.values())).metric if tables[0].columns else ""
    known = [one for one in sampled if one is not None]
    with_repeats = len(known) == len(sampled)
    scores, places = _build_score_matrix(tables, ".mean" if with_repeats else "")
    if len(places) < 2:
        return None
    whole, _ = read_clusters(sources[0], tables[0], pair_documents(tables[0], tables[0]), options.cluster_by)
    names = None if whole is None else [whole[place] for place in places]
    compared: Floats = scores[1] - scores[0] if len(scores) == 2 else np.asarray(scores.mean(axis=0))
    effect, units = 1.0, 1.0
    if names:
        effect = max(1.0, compute_design_effect(compared, names))
        units = encode_clusters(names)[1] / len(names)
    pilot = _Pilot(scores, known if with_repeats else [], effect, units, options)
    spread, how = pilot.spread()
    count = options.documents or scores.shape[1]
    return _build_row(task, metric, how, count, spread, options, pilot.correlation)


@dataclass(frozen=True, slots=True)
class _Pilot:
    """The pilot runs of one task: a row of scores per run, in percentage points."""

    scores: Floats
    repeat_variances: Sequence[tuple[float, int]]
    """(variance between repeats, number of repeats) of each run; empty without repeats."""

    design_effect: float
    units_per_document: float
    options: PowerOptions

    @property
    def is_binary(self) -> bool:
        """Whether the test is McNemar's: one right or wrong answer per document, and no clusters."""
        plain = self.options.repeats == 1 and not self.repeat_variances and self.units_per_document == 1
        return plain and bool(np.isin(self.scores, (0.0, 100.0)).all())

    @property
    def correlation(self) -> float | None:
        if len(self.scores) != 2 or self.scores.std(axis=1).min() == 0:
            return None
        return float(np.corrcoef(self.scores[0], self.scores[1])[0][1])

    def spread(self) -> tuple[DifferenceVariance, str]:
        """Return the variance of differences, and how it was estimated."""
        if len(self.scores) == 2:
            return self._spread_from_two()
        assumed = self.options.correlation
        if len(self.scores) > 2:
            found = analyse_repeats(self.scores.T)
            between, within, how = found.between, found.within, f"{len(self.scores)} runs as repeats"
        elif self.repeat_variances:
            ((within, count),) = self.repeat_variances
            between = max(0.0, float(self.scores[0].var(ddof=1)) - within / count)
            how = f"one run, {count} answers per document"
        else:
            between, within, how = _estimate_score_variance(self.scores[0]), 0.0, "one run"
        spread = self._build_spread(compute_paired_variance(between, between, assumed), within, within)
        return spread, f"{how}, correlation {assumed:g} assumed"

    def _spread_from_two(self) -> tuple[DifferenceVariance, str]:
        if not self.repeat_variances:
            return self._build_spread(
                _estimate_difference_variance(self.scores[0], self.scores[1]), 0.0, 0.0
            ), "two runs"
        noise = sum(within / count for within, count in self.repeat_variances)
        between = max(0.0, float((self.scores[1] - self.scores[0]).var(ddof=1)) - noise)
        (first, count), (second, other) = self.repeat_variances
        return self._build_spread(
            between, first, second
        ), f"two runs, {count} and {other} answers per document"

    def _build_spread(self, between: float, first: float, second: float) -> DifferenceVariance:
        return DifferenceVariance(
            between=between,
            within_first=first,
            within_second=second,
            repeats_first=self.options.repeats,
            repeats_second=self.options.repeats,
            design_effect=self.design_effect,
            units_per_document=self.units_per_document,
            binary=self.is_binary,
        )


def _find_repeat_variance(table: ScoreTable) -> tuple[float, int] | None:
    """Return the variance between answers to one document and the number of answers; None without repeats."""
    main = next(iter(table.columns.values()), None)
    if main is None:
        return None
    prefix = f"{main.metric}.maj@"
    for pipeline, metric in table.columns:
        if pipeline == main.pipeline and metric.startswith(prefix):
            within = scores_from_column(table.columns[pipeline, f"{main.metric}.within"])
            count = int(metric.removeprefix(prefix))
            return None if within is None else (1e4 * float(np.nanmean(within)), count)
    return None


def _build_score_matrix(tables: Sequence[ScoreTable], name: str = "") -> tuple[Floats, list[int]]:
    """Return scores in percentage points, a row per run and a column per shared document; and the documents' rows.

    `name`: the suffix of the metric's name: `.mean` for the means of repeats.
    """
    columns = [scores_from_column(_find_column(table, name)) for table in tables if table.columns]
    if len(columns) < len(tables) or any(column is None for column in columns):
        return np.empty((len(tables), 0)), []
    places = np.arange(len(tables[0].documents))
    rows = {0: places}
    for index, table in enumerate(tables[1:], 1):
        pairing = pair_documents(tables[0], table)
        found = np.full(len(places), -1)
        found[pairing.first] = pairing.second
        rows[index] = found
    kept = np.all([row >= 0 for row in rows.values()], axis=0)
    scores = np.array([np.asarray(columns[index])[row[kept]] for index, row in rows.items()])
    scored = ~np.isnan(scores).any(axis=0)
    return 100 * scores[:, scored], places[kept][scored].tolist()


def _find_column(table: ScoreTable, name: str) -> ScoreColumn:
    main = next(iter(table.columns.values()))
    return table.columns[main.pipeline, f"{main.metric}{name}"]


def _estimate_score_variance(scores: Floats) -> float:
    """Return the variance of a document's score.

    Two right and two wrong documents are added to right-or-wrong scores, because a pilot without variation does not show
    that there is none.
    """
    if not np.isin(scores, (0.0, 100.0)).all():
        return float(scores.var(ddof=1))
    share = (float((scores > 0).sum()) + 2) / (len(scores) + 4)
    return 1e4 * share * (1 - share)


def _estimate_difference_variance(first: Floats, second: Floats) -> float:
    """Return the variance of a document's difference, with one more flip in either direction for the same reason."""
    if not np.isin((first, second), (0.0, 100.0)).all():
        return float((second - first).var(ddof=1))
    size = len(first) + 2
    up, down = (float((second > first).sum()) + 1) / size, (float((second < first).sum()) + 1) / size
    return 1e4 * (up + down - (up - down) ** 2)


def _build_row(
    task: str,
    metric: str,
    how: str,
    count: int,
    spread: DifferenceVariance,
    options: PowerOptions,
    correlation: float | None,
) -> PowerRow:
    # tests and their power are in shares, this page in percentage points
    shares = replace(
        spread,
        between=spread.between / 1e4,
        within_first=spread.within_first / 1e4,
        within_second=spread.within_second / 1e4,
    )
    chances = {"power": options.power, "alpha": options.alpha}
    detectable = find_detectable_effect(count, shares, **chances)
    wanted = DEFAULT_EFFECTS if options.effect is None else (options.effect,)
    return PowerRow(
        task=task,
        metric=metric,
        how=how,
        documents=count,
        spread=spread.variance**0.5,
        correlation=correlation,
        design_effect=spread.design_effect,
        test="exact McNemar" if spread.binary else "sign flips",
        detectable=None if detectable is None else 100 * detectable,
        needed=tuple((effect, count_documents_needed(effect / 100, shares, **chances)) for effect in wanted),
    )
