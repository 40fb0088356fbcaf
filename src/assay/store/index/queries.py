"""Queries on the index of a run: filters, sort orders, facet counts and breakdowns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.store.filters.evaluation import match_documents
from assay.store.index.columns import OUTCOMES, Columns
from assay.store.index.document_index import DocumentIndex
from assay.store.index.text_search import parse_search_words

__all__ = [
    "Breakdown",
    "DocumentQuery",
    "Facets",
    "compute_breakdown",
    "count_facets",
    "find_categories",
    "list_categories",
    "select_documents",
]

Rows = NDArray[np.int64]
Sort = Literal["document", "score", "length", "outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentQuery:
    """Filters (combined with AND) and sort order of documents."""

    task: str = ""
    outcomes: tuple[str, ...] = ()
    metric: int = 0
    """Index of the score column: 0 is the first metric of each task."""

    low: float | None = None
    high: float | None = None
    """Range of scores, inclusive."""

    text: str = ""
    """Words that must all occur; `"several words"` is a phrase; `#12` is the document with that index."""

    categories: tuple[tuple[str, str], ...] = ()
    """(field, value) pairs."""

    where: str = ""
    """A filter expression (`store/filters`)."""

    sort: Sort = "document"
    descending: bool = False
    columns: tuple[str, ...] = ()
    """Names whose values the table of documents shows in addition; they do not affect the selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """Counts of the selected documents by task and outcome."""

    tasks: Mapping[str, int]
    outcomes: Mapping[str, int]
    right: int
    """Documents with a score of 1."""

    wrong: int
    """Documents with a score of 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A metric for one value of a field."""

    value: str
    documents: int
    mean: float
    stderr: float | None
    right: float | None
    """Number of documents with score 1 if all scores are 0 or 1."""


def select_documents(
    index: DocumentIndex, query: DocumentQuery, *, is_cancelled: Callable[[], bool] | None = None
) -> tuple[Columns, Rows]:
    """Return the columns and the rows of the selected documents, sorted.

    Raises:
        FilterError: The filter expression is invalid.
        EvaluationCancelled: `is_cancelled` returned true while the filter expression was evaluated.
    """
    columns = index.columns
    keep = np.ones(len(columns), dtype=bool)
    if query.task:
        known = query.task in columns.tasks
        keep &= (columns.task == columns.tasks.index(query.task)) if known else False
    if query.outcomes:
        codes = [OUTCOMES.index(outcome) for outcome in query.outcomes if outcome in OUTCOMES]
        keep &= np.isin(columns.outcome, codes)
    if query.low is not None or query.high is not None:
        scores = columns.scores[query.metric]
        with np.errstate(invalid="ignore"):
            if query.low is not None:
                keep &= scores >= query.low
            if query.high is not None:
                keep &= scores <= query.high
    for name, value in query.categories:
        category = columns.categories.get(name)
        code = None if category is None else category.values.get(value)
        keep &= False if category is None or code is None else category.codes == code
    if query.text.strip():
        keep &= _match_text(index, columns, query.text)
    if query.where.strip():
        keep &= match_documents(index, columns, query.where, is_cancelled=is_cancelled)
    rows = np.flatnonzero(keep)
    return columns, rows[_order(columns, rows, query)]


def _match_text(index: DocumentIndex, columns: Columns, text: str) -> NDArray[np.bool_]:
    wanted = text.strip()
    if wanted[:1] == "#" and wanted[1:].isdecimal():
        numbered: NDArray[np.bool_] = columns.position == int(wanted[1:])
        return numbered
    words = parse_search_words(text)
    return index.search(words, len(columns)) if words else np.ones(len(columns), dtype=bool)


def _order(columns: Columns, rows: Rows, query: DocumentQuery) -> Rows:
    """Return the sort order; ties stay in run order."""
    ids = columns.ids[rows]
    place = np.arange(len(rows)) if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()) else np.argsort(ids)
    if query.sort == "document":
        return place[::-1] if query.descending else place
    if query.sort == "score":
        keys = columns.scores[query.metric][rows][place]
    elif query.sort == "length":
        keys = columns.length[rows][place].astype(np.float64)
    else:
        keys = columns.outcome[rows][place].astype(np.float64)
    if query.descending:
        keys = -keys
    return place[np.argsort(keys, kind="stable")]  # documents without a score come last, either way


def count_facets(columns: Columns, rows: Rows, metric: int = 0) -> Facets:
    """Count documents by task, outcome and score."""
    tasks = np.bincount(columns.task[rows], minlength=len(columns.tasks))
    outcomes = np.bincount(columns.outcome[rows], minlength=len(OUTCOMES))
    scores = columns.scores[metric][rows]
    return Facets(
        tasks={name: int(count) for name, count in zip(columns.tasks, tasks, strict=True) if count},
        outcomes={name: int(count) for name, count in zip(OUTCOMES, outcomes, strict=True) if count},
        right=int((scores == 1).sum()),
        wrong=int((scores == 0).sum()),
    )


def list_categories(columns: Columns, task: str = "") -> dict[str, dict[str, int]]:
    """Return useful category fields: field -> value -> count, the most frequent first."""
    rows = columns.task == columns.tasks.index(task) if task in columns.tasks else slice(None)
    found: dict[str, dict[str, int]] = {}
    for name, category in columns.categories.items():
        codes = category.codes[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(category.values))
        listed = {value: int(counts[code]) for value, code in category.values.items() if counts[code]}
        is_shared = int(counts.sum()) >= 3 * len(listed)  # else nearly every document has its own value
        if len(listed) > 1 and is_shared and not _is_media(listed):
            found[name] = dict(sorted(listed.items(), key=lambda item: (-item[1], item[0])))
    return found


def find_categories(columns: Columns, row: int) -> dict[str, str]:
    """Return the values of a document's category fields."""
    found: dict[str, str] = {}
    for name, category in columns.categories.items():
        code = int(category.codes[row])
        if code >= 0:
            found[name] = next(value for value, number in category.values.items() if number == code)
    return found


_MEDIA_VALUE = re.compile(
    r"(?i)^(?:data:|https?://|[\[{<]|.*\.(?:png|jpe?g|gif|bmp|webp|avif|wav|mp3|flac|ogg|m4a|mp4|webm|avi|mov|mkv)$)"
    r"|^[0-9a-f]{32,}$"
)


def _is_media(values: Iterable[str]) -> bool:
    """Whether values are files, addresses, digests or structures: they name a picture, not a category."""
    return any(_MEDIA_VALUE.match(value) for value in values)


def compute_breakdown(columns: Columns, task: str, field: str, metric: int = 0) -> list[Breakdown]:
    """Return the mean of a metric for each value of a field, the most frequent first."""
    category = columns.categories.get(field)
    if category is None or task not in columns.tasks:
        return []
    chosen = (columns.task == columns.tasks.index(task)) & ~np.isnan(columns.scores[metric])
    chosen &= category.codes >= 0
    codes, scores = category.codes[chosen].astype(np.int64), columns.scores[metric][chosen]
    counts = np.bincount(codes, minlength=len(category.values))
    sums = np.bincount(codes, weights=scores, minlength=len(category.values))
    squares = np.bincount(codes, weights=scores**2, minlength=len(category.values))
    binary = bool(((scores == 0) | (scores == 1)).all())
    found = []
    for value, code in category.values.items():
        count = int(counts[code])
        if not count:
            continue
        mean = float(sums[code] / count)
        spread = max(0.0, float(squares[code] / count) - mean * mean)
        stderr = (spread / (count - 1)) ** 0.5 if count > 1 else None
        right = float(sums[code]) if binary else None
        found.append(Breakdown(value=value, documents=count, mean=mean, stderr=stderr, right=right))
    return sorted(found, key=lambda one: (-one.documents, one.value))
