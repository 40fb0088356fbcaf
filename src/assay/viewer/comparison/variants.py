"""Compare two runs over the same prompt variants: one difference per task, with the spread between prompts in its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.core.records.variants import BASE_VARIANT, VARIANT_SEPARATOR
from assay.stats.comparisons.crossed_pairs import compare_crossed_pairs
from assay.viewer.comparison.records import ComparisonRow, VariantDifference

__all__ = ["PairedScores", "combine_variants", "describe_winners", "find_families"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedScores:
    """The scores of both runs with one prompt, in one metric."""

    row: ComparisonRow
    """The comparison with this prompt alone."""

    documents: Sequence[int]
    """The number of each document in the first run."""

    before: Floats
    after: Floats
    clusters: Sequence[Any] | None


def find_families(first: Sequence[str], second: Sequence[str]) -> dict[str, str]:
    """Return variant -> task, for the variants that both runs have.

    >>> find_families(["a@base", "a@v1", "b"], ["a@base", "a@v1", "a@v2"])
    {'a@base': 'a', 'a@v1': 'a'}
    """
    found: dict[str, str] = {}
    for task in first:
        family, separator, _ = task.rpartition(VARIANT_SEPARATOR)
        base = f"{family}{VARIANT_SEPARATOR}{BASE_VARIANT}"
        if separator and task in second and base in first and base in second:
            found[task] = family
    several = {family for family in found.values() if list(found.values()).count(family) > 1}
    return {task: family for task, family in found.items() if family in several}


def combine_variants(family: str, members: Sequence[PairedScores], *, level: float) -> ComparisonRow | None:
    """Return the difference over documents and variants; None if the variants share no document."""
    shared = set(members[0].documents).intersection(*(one.documents for one in members[1:]))
    documents = [document for document in members[0].documents if document in shared]
    if not documents:
        return None
    before, after = (
        np.stack([_align(one, documents, attribute) for one in members], axis=1)
        for attribute in ("before", "after")
    )
    clusters = None
    if (known := members[0].clusters) is not None:
        by_document = dict(zip(members[0].documents, known, strict=True))
        clusters = [by_document[document] for document in documents]
    try:
        found = compare_crossed_pairs(before, after, clusters, level=level)
    except AssayError:
        return None
    pattern = members[0].row
    steps = (after - before).mean(axis=1) * (1 if pattern.higher_is_better else -1)
    return replace(
        pattern,
        task=family,
        first=float(before.mean()),
        second=float(after.mean()),
        difference=found.value,
        stderr=found.stderr,
        low=found.interval.low,
        high=found.interval.high,
        interval_method=found.interval.method,
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test=found.test,
        documents=len(documents),
        wins=int((steps > 0).sum()),
        ties=int((steps == 0).sum()),
        losses=int((steps < 0).sum()),
        degrees=found.degrees,
        share=all(one.row.share for one in members),
        blocked=tuple(dict.fromkeys(kind for one in members for kind in one.row.blocked)),
        flips=(),
        notes=tuple(dict.fromkeys(note for one in members for note in one.row.notes)),
        variants=tuple(
            VariantDifference(
                name=one.row.task.rpartition(VARIANT_SEPARATOR)[2],
                first=one.row.first,
                second=one.row.second,
                difference=one.row.difference,
                winner=_find_winner(one.row),
            )
            for one in members
        ),
    )


def describe_winners(row: ComparisonRow, first: str, second: str) -> str:
    """Return a note: which run is ahead with which prompts.

    `arc: the winner changes with the wording: tuned is ahead with base and v2, base-model with v1`
    """
    ahead = {
        who: [one.name for one in row.variants if one.winner == who] for who in ("first", "second", "neither")
    }
    if ahead["first"] and ahead["second"]:
        return (
            f"{row.task}: the winner changes with the wording: {second} is ahead with {_join(ahead['second'])},"
            f" {first} with {_join(ahead['first'])}"
        )
    leader = "first" if ahead["first"] else "second" if ahead["second"] else ""
    if not leader:
        return f"{row.task}: the scores are equal with all {len(row.variants)} prompts"
    name = first if leader == "first" else second
    count, total = len(ahead[leader]), len(row.variants)
    return f"{row.task}: {name} is ahead with {f'all {total}' if count == total else f'{count} of {total}'} prompts"


def _find_winner(row: ComparisonRow) -> str:
    if row.difference == 0:
        return "neither"
    return "second" if (row.difference > 0) == row.higher_is_better else "first"


def _align(scores: PairedScores, documents: Sequence[int], attribute: str) -> Floats:
    by_document = dict(zip(scores.documents, getattr(scores, attribute).tolist(), strict=True))
    return np.array([by_document[document] for document in documents], dtype=np.float64)


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
