"""Clusters of documents: several questions about one text, image or video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import UnknownName
from assay.store.documents.score_tables import ScoreTable, ScoreTableSource
from assay.viewer.comparison.pairing import Pairing

__all__ = ["read_clusters", "suggest_cluster_field"]

_LIKELY_FIELDS = (
    "passage", "passage_id", "context", "story", "article", "paragraph", "video", "video_id", "videoID", "video_name",
    "image_id", "image", "question_id", "group_id", "idx.paragraph",
)  # fmt: skip
"""Fields that often identify what several documents share."""

_MAX_INSPECTED = 5000


def read_clusters(
    source: ScoreTableSource, table: ScoreTable, pairing: Pairing, field: str
) -> tuple[Sequence[Any] | None, str]:
    """Return the cluster of each pair, or None if documents are not clustered; and a note, or an empty string.

    Raises:
        UnknownName: The documents have no such field.
    """
    key = field or table.cluster_key
    if not key:
        return None, ""
    values = source.field(table.task, key)
    if all(value is None for value in values):
        if not field:
            return (
                None,
                f"{table.task}: no document has the cluster key `{key}`; documents are treated as independent",
            )
        known = ", ".join(source.field_names(table.task)) or "none stored"
        raise UnknownName(
            f"the documents of `{table.task}` have no field `{key}`", hint=f"they have: {known}"
        )
    return [values[row] for row in pairing.first.tolist()], ""


def suggest_cluster_field(source: ScoreTableSource, task: str) -> str:
    """Return a hint if several documents share a text or an image, else an empty string."""
    fields = source.field_names(task)
    for name in _LIKELY_FIELDS:
        if name.partition(".")[0] not in fields:
            continue
        values = [value for value in source.field(task, name)[:_MAX_INSPECTED] if value is not None]
        kinds = len(set(map(str, values)))
        if values and 10 < kinds < 0.8 * len(values):
            return (
                f"{task}: {len(values)} documents share {kinds} values of `{name}`; use `--cluster_by {name}` to"
                " account for that in the interval"
            )
    return ""
