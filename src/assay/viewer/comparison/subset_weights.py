"""The weighted subset on which two runs can be compared."""

from __future__ import annotations

from assay.core.records.subsets import DocumentSubset
from assay.store.documents.score_tables import ScoreTable
from assay.viewer.comparison.pairing import Pairing

__all__ = ["find_shared_subset", "list_subset_documents"]


def find_shared_subset(
    first: ScoreTable, second: ScoreTable, pairing: Pairing
) -> tuple[DocumentSubset | None, str]:
    """Return the subset whose weights apply to the documents that both runs have, and a note; None: equal weights.

    Two runs with the same subset, or a run with a subset and one with all documents, are compared with the weights of the subset.
    Documents that two different subsets share are no sample with known weights.
    """
    known = [
        DocumentSubset.from_json(table.subset, where=table.task)
        for table in (first, second)
        if table.subset is not None
    ]
    if not known:
        return None, ""
    if len(known) == 2 and known[0].members != known[1].members:
        return None, (
            "the runs have different subsets; the documents in both are compared without weights, so the difference is that of"
            " these documents only (`--subset RUN` evaluates the subset of another run)"
        )
    subset = known[0]
    lacking = subset.sampled - len(list_subset_documents(first, second, pairing))
    if lacking:
        return None, (
            f"a run lacks {lacking} documents of the subset; the documents in both are compared without weights"
        )
    return subset, f"weighted: {subset.sampled} documents stand for all {subset.documents} ({subset.method})"


def list_subset_documents(first: ScoreTable, second: ScoreTable, pairing: Pairing) -> list[int]:
    """Return the number of each pair of documents in the run with the subset."""
    table, rows = (first, pairing.first) if first.subset is not None else (second, pairing.second)
    return [table.documents[row] for row in rows.tolist()]
