"""Which documents belong together: several questions about one text, picture or video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import UnknownName
from assay.store.sheets import Sheet, SheetSource
from assay.viewer.comparison.pairing import Pairing

__all__ = ["cluster_names", "suggested_clusters"]

_LIKELY = (
    "passage", "passage_id", "context", "story", "article", "paragraph", "video", "video_id", "videoID", "video_name",
    "image_id", "image", "question_id", "group_id", "idx.paragraph",
)  # fmt: skip
"""Fields that often name what several documents share."""

_LOOKED_AT = 5000


def cluster_names(
    source: SheetSource, sheet: Sheet, pairing: Pairing, field: str
) -> tuple[Sequence[Any] | None, str]:
    """The cluster of each pair, or None where each document stands for itself; and a note worth showing.

    Raises:
        UnknownName: The field that was asked for is not there.
    """
    key = field or sheet.cluster_key
    if not key:
        return None, ""
    values = source.field(sheet.task, key)
    if all(value is None for value in values):
        if not field:
            return None, f"{sheet.task}: no document has its cluster key `{key}`, so each stands for itself"
        known = ", ".join(source.field_names(sheet.task)) or "none that are kept"
        raise UnknownName(
            f"the documents of `{sheet.task}` have no field `{key}`", hint=f"they have: {known}"
        )
    return [values[row] for row in pairing.first.tolist()], ""


def suggested_clusters(source: SheetSource, task: str) -> str:
    """A hint where documents seem to share a text or a picture; empty where not."""
    fields = source.field_names(task)
    for name in _LIKELY:
        if name.partition(".")[0] not in fields:
            continue
        values = [value for value in source.field(task, name)[:_LOOKED_AT] if value is not None]
        kinds = len(set(map(str, values)))
        if values and 10 < kinds < 0.8 * len(values):
            return (
                f"{task}: {len(values)} documents share {kinds} values of `{name}`; with `--cluster_by {name}` the"
                " interval allows for that"
            )
    return ""
