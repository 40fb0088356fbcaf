"""Human labels of a run: agreement between people, their consensus, and which documents to label next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.calibration import compute_cohen_kappa
from assay.store.documents.score_tables import ScoreTable, ScoreTableSource
from assay.store.runs.labels import Label, group_labels
from assay.viewer.comparison.pairing import pair_documents, scores_from_column

__all__ = [
    "LabellerPair",
    "QueueEntry",
    "average_labels",
    "build_label_queue",
    "compute_label_agreement",
]

_AGREEMENT_SUFFIX = "_agreement"
"""The suffix of the metric that a judge panel reports: the share of its judges with the most frequent verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellerPair:
    """The agreement of two people on the documents that both labelled."""

    first: str
    second: str
    documents: int
    agreement: float
    kappa: float | None
    """Cohen's kappa; None if both always give the same verdict."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A document to label, because judges or runs disagree about it."""

    task: str
    document: int
    disagreement: float
    why: str


def compute_label_agreement(labels: Iterable[Label]) -> list[LabellerPair]:
    """Return the agreement of each pair of people who labelled the same documents."""
    verdicts: dict[str, dict[tuple[str, int], str]] = {}
    for label in labels:
        if label.verdict:
            verdicts.setdefault(label.who, {})[label.task, label.document] = label.verdict
    found = []
    for first, second in combinations(sorted(verdicts), 2):
        shared = sorted(verdicts[first].keys() & verdicts[second].keys())
        if not shared:
            continue
        ours, theirs = ([verdicts[who][key] for key in shared] for who in (first, second))
        found.append(
            LabellerPair(
                first=first,
                second=second,
                documents=len(shared),
                agreement=sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(shared),
                kappa=compute_cohen_kappa(ours, theirs),
            )
        )
    return found


def average_labels(labels: Iterable[Label]) -> dict[tuple[str, int], float]:
    """Return the mean verdict of each labelled document: 1 if all people say right, 0 if all say wrong."""
    means = {}
    for key, listed in group_labels(labels).items():
        values = [label.value for label in listed if label.value is not None]
        if values:
            means[key] = sum(values) / len(values)
    return means


def build_label_queue(
    source: ScoreTableSource,
    others: Sequence[ScoreTableSource] = (),
    *,
    labelled: Collection[tuple[str, int]] = (),
    limit: int = 50,
) -> list[QueueEntry]:
    """Return the documents without a label that are disputed most.

    With other runs: the documents whose scores differ most between the runs. Without: the documents on which the judges of
    the run agree least.
    """
    found: list[QueueEntry] = []
    for task in source.tasks:
        table = source.read_score_table(task)
        tables = [other.read_score_table(task, table.kind) for other in others if task in other.tasks]
        entries = _compare_runs(table, tables) if others else _compare_judges(table)
        found += [entry for entry in entries if (entry.task, entry.document) not in labelled]
    return sorted(found, key=lambda entry: (-entry.disagreement, entry.task, entry.document))[:limit]


def _compare_judges(table: ScoreTable) -> list[QueueEntry]:
    found = []
    for (_, metric), column in table.columns.items():
        scores = scores_from_column(column) if metric.endswith(_AGREEMENT_SUFFIX) else None
        if scores is None:
            continue
        for row in np.flatnonzero(scores < 1).tolist():
            found.append(
                QueueEntry(
                    task=table.task,
                    document=table.documents[row],
                    disagreement=1 - float(scores[row]),
                    why=f"{metric.removesuffix(_AGREEMENT_SUFFIX)}: {100 * scores[row]:.0f} % of the verdicts agree",
                )
            )
    return found


def _compare_runs(table: ScoreTable, others: Sequence[ScoreTable]) -> list[QueueEntry]:
    ours = _read_first_scores(table)
    if ours is None:
        return []
    columns = [ours]
    for other in others:
        theirs = _read_first_scores(other)
        if theirs is not None:
            pairing = pair_documents(table, other)
            aligned = np.full(len(ours), np.nan)
            aligned[pairing.first] = theirs[pairing.second]
            columns.append(aligned)
    scores = np.array(columns)
    known = (~np.isnan(scores)).sum(axis=0) > 1
    found = []
    for row in np.flatnonzero(known).tolist():
        values = scores[:, row][~np.isnan(scores[:, row])]
        spread = float(values.max() - values.min())
        if spread > 0:
            shown = ", ".join("–" if one != one else f"{one:g}" for one in scores[:, row].tolist())
            found.append(
                QueueEntry(
                    task=table.task,
                    document=table.documents[row],
                    disagreement=spread,
                    why=f"scores: {shown}",
                )
            )
    return found


def _read_first_scores(table: ScoreTable) -> NDArray[np.float64] | None:
    """Return the scores of the first metric with a number for each document."""
    for column in table.columns.values():
        scores = scores_from_column(column)
        if scores is not None:
            return scores
    return None
