"""`compare`: the differences between two runs, with their uncertainty and everything that makes them incomparable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UnknownName, UserError
from assay.core.records.subsets import DocumentSubset
from assay.scoring.metrics import METRICS
from assay.stats.comparisons.comparison import Difference, compare_pairs
from assay.stats.intervals.resampling import CorpusDifference, compare_corpora
from assay.stats.subsets.estimates import WeightedDifference, compare_weighted_pairs
from assay.store.documents.score_tables import ScoreColumn, ScoreTable, ScoreTableSource
from assay.viewer.comparison.attempts import pair_attempts
from assay.viewer.comparison.clusters import read_clusters, suggest_cluster_field
from assay.viewer.comparison.groups import compare_groups
from assay.viewer.comparison.mismatches import find_blocking_kinds, find_run_mismatches, find_task_mismatches
from assay.viewer.comparison.model_scores import find_source
from assay.viewer.comparison.multiplicity import adjust_comparisons
from assay.viewer.comparison.name_selection import check_metric_names
from assay.viewer.comparison.pairing import Pairing, pair_documents, scores_from_column
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow, Flip, Mismatch
from assay.viewer.comparison.subset_weights import find_shared_subset, list_subset_documents
from assay.viewer.comparison.variants import (
    PairedScores,
    combine_variants,
    describe_winners,
    find_families,
)

__all__ = ["compare_sources", "match_columns"]

Floats = NDArray[np.float64]

_MAX_CATEGORIES = 200
_NO_DOCUMENTS = "aggregate scores only, no documents"


def compare_sources(first: ScoreTableSource, second: ScoreTableSource, options: CompareOptions) -> Comparison:
    """Compare a second run with a first, task by task.

    Raises:
        UnknownName: The runs do not share a task or metric that is given by name.
        UserError: The runs have no task, metric or document in common.
    """
    rows: list[ComparisonRow] = []
    categories: list[ComparisonRow] = []
    mismatches: list[Mismatch] = []
    notes: list[str] = []
    lacking: list[UnknownName] = []
    families = find_families(first.tasks, second.tasks)
    if options.tasks:  # a variant that is named itself is compared alone
        families = {task: name for task, name in families.items() if name in options.tasks}
    selected = _select_tasks(first, second, options, families)
    metrics: dict[str, None] = {}
    by_family: dict[tuple[str, str, str], list[PairedScores]] = {}
    for task in selected:
        one = first.read_score_table(task)
        other = second.read_score_table(task, one.kind)
        if other.kind != one.kind:
            one = first.read_score_table(task, other.kind)
        if without := [
            source.name
            for source, table in ((first, one), (second, other))
            if not table.documents and any(estimate.task == task for estimate in source.read_estimates())
        ]:
            notes.append(f"{task}: {' and '.join(dict.fromkeys(without))}: {_NO_DOCUMENTS}")
            continue
        one, other, note = pair_attempts(one, other)
        notes += [note] if note else []
        metrics |= dict.fromkeys(column.metric for column, _ in match_columns(one, other))
        pairing = pair_documents(one, other)
        left, right = find_source(first, task), find_source(second, task)
        found = [
            *find_run_mismatches(left, right),
            *find_task_mismatches(one, other, pairing, same_model=left.model == right.model),
        ]
        mismatches += found
        if not len(pairing.first):
            notes.append(f"{task}: the runs have no document in common: all contents differ")
            continue
        try:
            names, note = read_clusters(first, one, pairing, options.cluster_by)
        except UnknownName as error:
            lacking.append(error)
            names, note = None, f"{error.what}; documents are treated as independent"
        notes += [note] if note else []
        uses_clusters = find_shared_subset(one, other, pairing)[0] is None
        if names is None and uses_clusters and not options.cluster_by:
            notes += [hint] if (hint := suggest_cluster_field(first, task)) else []
        if not options.metrics and (hint := _suggest_repeats_metric(one, other)):
            notes.append(hint)
        compared = [
            _block_verdict(row, found, options)
            for row in _compare_task(one, other, pairing, names, options, notes)
        ]
        if task in families:
            for row in compared:
                scores = _read_paired_scores(one, other, pairing, names, row)
                by_family.setdefault((families[task], row.pipeline, row.metric), []).append(scores)
            continue
        rows += compared
        if options.category and compared:
            try:
                parts = _compare_categories(first, one, other, pairing, names, compared[0], options, notes)
                categories += [_block_verdict(row, found, options) for row in parts]
            except UnknownName as error:
                lacking.append(error)
                notes.append(error.what)
    for (family, *_), members in by_family.items():
        combined = combine_variants(family, members, level=options.level)
        if combined is None:
            notes.append(f"{family}: the prompt variants cannot be compared together")
            rows += [member.row for member in members]
            continue
        rows.append(combined)
        notes.append(describe_winners(combined, *_choose_labels(first, second)))
    if metrics:  # without any, the runs have no documents
        check_metric_names(options.metrics, metrics)
    field_count = bool(options.cluster_by) + bool(options.category)
    if lacking and len(lacking) == field_count * len({row.task for row in rows}):
        raise lacking[0]
    if not rows:
        if notes and all(note.endswith(_NO_DOCUMENTS) for note in notes):
            notes.append("`assay table` shows the scores side by side")
        raise UserError("the runs have no metric and document in common", hint="; ".join(notes))
    comparison = Comparison(
        first=first.name,
        second=second.name,
        first_model=first.model,
        second_model=second.model,
        level=options.level,
        correction=options.correction,
        rows=tuple(rows),
        categories=tuple(categories),
        groups=tuple(compare_groups(first, second, rows, level=options.level)),
        mismatches=_merge_mismatches(mismatches),
        notes=tuple(dict.fromkeys(notes)),
    )
    return adjust_comparisons([comparison])[0]


def _choose_labels(first: ScoreTableSource, second: ScoreTableSource) -> tuple[str, str]:
    """Return how to name both runs: by their models if these differ."""
    if first.model and second.model and first.model != second.model:
        return first.model, second.model
    return "the first run", "the second run"


def _read_paired_scores(
    first: ScoreTable,
    second: ScoreTable,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    row: ComparisonRow,
) -> PairedScores:
    """Return the scores behind a row, for the comparison over all prompt variants."""
    column, other = next(
        both
        for both in match_columns(first, second)
        if (both[0].pipeline, both[0].metric) == (row.pipeline, row.metric)
    )
    before, after = scores_from_column(column), scores_from_column(other)
    if before is None or after is None:
        return PairedScores(row=row, documents=[], before=np.empty(0), after=np.empty(0), clusters=None)
    left, right = before[pairing.first], after[pairing.second]
    kept = np.flatnonzero(~(np.isnan(left) | np.isnan(right))).tolist()
    return PairedScores(
        row=row,
        documents=[first.documents[pairing.first[index]] for index in kept],
        before=left[kept],
        after=right[kept],
        clusters=None if clusters is None else [clusters[index] for index in kept],
    )


def _select_tasks(
    first: ScoreTableSource, second: ScoreTableSource, options: CompareOptions, families: Mapping[str, str]
) -> list[str]:
    """Return the tasks to compare. `families` are the variants of the tasks that have several prompts."""
    shared = [task for task in first.tasks if task in second.tasks]
    chosen: dict[str, None] = {}
    for task in options.tasks:
        members = [task] if task in shared else [one for one in families if families[one] == task]
        chosen |= dict.fromkeys(members)
        if not members:
            raise UnknownName(
                f"the task `{task}` is not in both runs", hint=f"both have: {', '.join(shared) or 'none'}"
            )
    if not shared:
        raise UserError(
            f"the runs have no task in common: {_list_names(first.tasks)} and {_list_names(second.tasks)}",
            hint="runs can only be compared on tasks that both have",
        )
    return list(chosen) or shared


def _list_names(tasks: Sequence[str]) -> str:
    named = ", ".join(f"`{task}`" for task in tasks[:3]) or "none"
    return f"{named} and {len(tasks) - 3} more" if len(tasks) > 3 else named


def _block_verdict(
    row: ComparisonRow, mismatches: Sequence[Mismatch], options: CompareOptions
) -> ComparisonRow:
    """Add the mismatches because of which neither run is called better."""
    kinds = find_blocking_kinds(mismatches, metric=row.metric, pipeline=row.pipeline, allow=options.allow)
    return replace(row, blocked=kinds) if kinds else row


def _compare_task(
    first: ScoreTable,
    second: ScoreTable,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
    notes: list[str],
) -> Iterator[ComparisonRow]:
    shared = match_columns(first, second)
    wanted = [both for both in shared if both[0].metric in options.metrics] if options.metrics else shared[:1]
    if not wanted:
        lacking = ", ".join(options.metrics) or "a common metric"
        notes.append(f"{first.task}: {lacking} is missing in one of the runs")
    for column, other in wanted:
        row = _compare_column(first, second, (column, other), pairing, clusters, options)
        if row is None:
            notes.append(f"{first.task}: {column.metric} is aggregated by task code and cannot be compared")
        else:
            yield row


def _compare_column(
    first: ScoreTable,
    second: ScoreTable,
    columns: tuple[ScoreColumn, ScoreColumn],
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
) -> ComparisonRow | None:
    column, other = columns
    before, after = scores_from_column(column), scores_from_column(other)
    if before is None or after is None or find_aggregation(column) not in _MEAN_AGGREGATIONS:
        return _compare_corpus(first, column, other, pairing, clusters, options)
    left, right = before[pairing.first], after[pairing.second]
    kept = ~(np.isnan(left) | np.isnan(right))
    if not kept.any():
        return None
    chosen = None if clusters is None else [name for name, keep in zip(clusters, kept, strict=True) if keep]
    subset, subset_note = find_shared_subset(first, second, pairing)
    if subset is None:
        row = _compare_scores(first.task, column, left[kept], right[kept], chosen, options)
    else:
        numbers = list_subset_documents(first, second, pairing)
        drawn = [numbers[index] for index in np.flatnonzero(kept).tolist()]
        row = _compare_weighted(first.task, column, (left[kept], right[kept]), (subset, drawn), options)
    lost = int((~kept).sum())
    row_notes = [_describe_missing(lost, len(kept))] if lost else []
    row_notes += [subset_note] if subset_note else []
    if subset is not None and chosen is not None:
        row_notes.append(
            "clusters are not used: the interval is about the documents of the task, which were drawn one by one"
        )
    if row.clusters == 1:
        row_notes.append("all documents belong to one cluster, so the uncertainty cannot be estimated")
    if (
        first.subset is None
        and second.subset is None
        and not (_is_mean(column, before) and _is_mean(other, after))
    ):
        row_notes.append("the reported values are not means of the document scores; the means are compared")
    flips: tuple[Flip, ...] = ()
    if options.flips:
        flips = tuple(_find_flips(first, second, pairing, left, right, kept))
    return replace(row, flips=flips, notes=tuple(row_notes))


def _suggest_repeats_metric(first: ScoreTable, second: ScoreTable) -> str:
    """Return a hint if documents have repeated answers, whose mean is more precise than the reported metric."""
    if first.attempts or second.attempts:
        return ""  # the score of an agent is the mean already
    shared = match_columns(first, second)
    main = shared[0][0] if shared else None
    name = f"{main.metric}.mean" if main else ""
    if main is None or all(column.metric != name for column, _ in shared):
        return ""
    return f"{first.task}: documents have repeated answers; use `--metric {name}` to compare all of them"


def match_columns(first: ScoreTable, second: ScoreTable) -> list[tuple[ScoreColumn, ScoreColumn]]:
    """Return the columns with the same metric and filter in both; the same metric if files do not name filters."""
    shared = [(first.columns[key], second.columns[key]) for key in first.columns if key in second.columns]
    if shared:
        return shared
    others: dict[str, ScoreColumn] = {}
    for column in second.columns.values():
        others.setdefault(column.metric, column)
    found: dict[str, tuple[ScoreColumn, ScoreColumn]] = {}
    for column in first.columns.values():
        if column.metric in others:
            found.setdefault(column.metric, (column, others[column.metric]))
    return list(found.values())


_MEAN_AGGREGATIONS = frozenset({"mean", "nanmean"})


def find_aggregation(column: ScoreColumn) -> str:
    """Return the name of a column's aggregation; if it is not stored, that of the built-in metric of the same name."""
    if column.aggregation or column.metric not in METRICS:
        return column.aggregation or "mean"
    return METRICS.get(column.metric).aggregation


def is_higher_better(column: ScoreColumn) -> bool:
    """Whether a higher value is better; if it is not stored, as for the built-in metric of the same name."""
    if column.higher_is_better is None and column.metric in METRICS:
        return METRICS.get(column.metric).higher_is_better
    return column.higher_is_better is not False


def _is_mean(column: ScoreColumn, numbers: Floats) -> bool:
    """Whether the reported value is the mean of the document scores; True if none is reported."""
    if column.reported is None:
        return True
    middle = float(np.nanmean(numbers))
    return math.isclose(middle, column.reported, rel_tol=1e-6, abs_tol=1e-9)


def _find_flips(
    first: ScoreTable,
    second: ScoreTable,
    pairing: Pairing,
    left: Floats,
    right: Floats,
    kept: NDArray[np.bool_],
) -> Iterator[Flip]:
    for index in np.flatnonzero(kept & (left != right)).tolist():
        yield Flip(
            document=first.documents[pairing.first[index]],
            other=second.documents[pairing.second[index]],
            first=float(left[index]),
            second=float(right[index]),
        )


def _compare_scores(
    task: str,
    column: ScoreColumn,
    before: Floats,
    after: Floats,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
    category: str = "",
) -> ComparisonRow:
    found = compare_pairs(before, after, clusters, level=options.level)
    up, down = (found.wins, found.losses) if is_higher_better(column) else (found.losses, found.wins)
    share = min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1
    row = _build_row(task, column, found, test=found.test, documents=found.documents, clusters=found.clusters)
    return replace(
        row,
        category=category,
        degrees=found.degrees,
        wins=up,
        ties=found.ties,
        losses=down,
        share=bool(share),
    )


def _compare_weighted(
    task: str,
    column: ScoreColumn,
    scores: tuple[Floats, Floats],
    sample: tuple[DocumentSubset, Sequence[int]],
    options: CompareOptions,
) -> ComparisonRow:
    """Compare two runs on a weighted subset; `sample` is the subset and the document of each pair of scores."""
    before, after = scores
    subset, documents = sample
    strata = subset.strata
    found = compare_weighted_pairs(
        before, after, [strata[document] for document in documents], subset.sizes, level=options.level
    )
    steps = after - before if is_higher_better(column) else before - after
    row = _build_row(task, column, found, test=found.test, documents=len(before), clusters=None)
    return replace(
        row,
        degrees=found.degrees,
        wins=int((steps > 0).sum()),
        ties=int((steps == 0).sum()),
        losses=int((steps < 0).sum()),
        share=bool(min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1),
    )


def _build_row(
    task: str,
    column: ScoreColumn,
    found: Difference | CorpusDifference | WeightedDifference,
    *,
    test: str,
    documents: int,
    clusters: int | None,
) -> ComparisonRow:
    """Build the part of a row that means and corpus metrics share; `adjust_comparisons` fills in significance."""
    return ComparisonRow(
        task=task,
        metric=column.metric,
        pipeline=column.pipeline,
        first=found.first,
        second=found.second,
        difference=found.value,
        stderr=found.stderr,
        low=found.interval.low,
        high=found.interval.high,
        interval_method=found.interval.method,
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test=test,
        differs=False,
        better=None,
        detectable=None,
        documents=documents,
        clusters=clusters,
        higher_is_better=is_higher_better(column),
    )


def _compare_corpus(
    table: ScoreTable,
    column: ScoreColumn,
    other: ScoreColumn,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    options: CompareOptions,
) -> ComparisonRow | None:
    """Compare a metric that is defined for a set of documents only: F1, BLEU, perplexity."""
    rows = [
        (column.values[one], other.values[two])
        for one, two in zip(pairing.first.tolist(), pairing.second.tolist(), strict=True)
    ]
    kept = [index for index, both in enumerate(rows) if both[0] is not None and both[1] is not None]
    aggregation = find_aggregation(column)
    if not kept:
        return None
    names = None if clusters is None else [clusters[index] for index in kept]
    try:
        found = compare_corpora(
            aggregation,
            [rows[index][0] for index in kept],
            [rows[index][1] for index in kept],
            names,
            level=options.level,
        )
    except (TypeError, ValueError):  # values that the aggregation does not accept
        return None
    if found is None:
        return None
    test = "swapped answers" if found.clusters is None else "swapped answers, whole clusters"
    row = _build_row(table.task, column, found, test=test, documents=len(kept), clusters=found.clusters)
    lost = len(rows) - len(kept)
    row_notes = (_describe_missing(lost, len(rows)),) if lost else ()
    return replace(row, share=aggregation in ("f1", "acc_all"), notes=row_notes)


def _describe_missing(lost: int, total: int) -> str:
    return f"{lost} of {total} documents have no score in one of the runs and are excluded"


def _compare_categories(
    source: ScoreTableSource,
    first: ScoreTable,
    second: ScoreTable,
    pairing: Pairing,
    clusters: Sequence[Any] | None,
    whole: ComparisonRow,
    options: CompareOptions,
    notes: list[str],
) -> list[ComparisonRow]:
    """Compare the main metric within each value of a field, the largest category first."""
    values = source.field(first.task, options.category)
    if all(value is None for value in values):
        known = ", ".join(source.field_names(first.task)) or "none"
        raise UnknownName(
            f"the documents of `{first.task}` have no field `{options.category}`", hint=f"they have: {known}"
        )
    labels = np.array([str(values[row]) for row in pairing.first.tolist()])
    column, other = next(
        both
        for both in match_columns(first, second)
        if (both[0].pipeline, both[0].metric) == (whole.pipeline, whole.metric)
    )
    before, after = scores_from_column(column), scores_from_column(other)
    if before is None or after is None:
        notes.append(f"{first.task}: {whole.metric} has no document scores, so categories cannot be compared")
        return []
    left, right = before[pairing.first], after[pairing.second]
    kept = ~(np.isnan(left) | np.isnan(right))
    if first.subset is not None or second.subset is not None:
        notes.append(f"{first.task}: categories are compared without the weights of the subset")
    names, counts = np.unique(labels[kept], return_counts=True)
    if len(names) > _MAX_CATEGORIES:
        notes.append(
            f"{first.task}: `{options.category}` has {len(names)} values; only the largest {_MAX_CATEGORIES} are shown"
        )
    rows = []
    for name in names[np.argsort(-counts, kind="stable")][:_MAX_CATEGORIES]:
        chosen = kept & (labels == name)
        own = None if clusters is None else [clusters[index] for index in np.flatnonzero(chosen).tolist()]
        rows.append(_compare_scores(first.task, column, left[chosen], right[chosen], own, options, str(name)))
    return rows


def _merge_mismatches(mismatches: Sequence[Mismatch]) -> tuple[Mismatch, ...]:
    """Merge equal mismatches of several tasks."""
    found: dict[tuple[str, str], list[Mismatch]] = {}
    for one in mismatches:
        found.setdefault((one.kind, one.what), []).append(one)
    merged = []
    for group in found.values():
        tasks = [one.task for one in group if one.task]
        named = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
        merged.append(replace(group[0], task=named))
    return tuple(merged)
