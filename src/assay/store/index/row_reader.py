"""Converts rows of the journal to columns of the index, a few thousand documents at a time."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.store.index.columns import MAX_CATEGORY_VALUES, MAX_METRICS, OUTCOMES, Category, Columns
from assay.store.journal.journal import Journal
from assay.store.journal.rows import decode_verdict_value, parse_json

__all__ = ["FingerprintIndex", "RowReader", "compute_document_value", "parse_fingerprints"]

_MAX_VALUE_LENGTH = 60
_MAX_CATEGORIES = 24
_LOOKUP_BATCH = 1000
_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
_SELECT_TEXTS = "SELECT fingerprint, text FROM answered WHERE text IS NOT NULL AND id IN ({})"

Row = tuple[int, str | None, str | None, str | None, str | None, str | None]
"""(id, fields, target, requests, outcome, verdicts) of a document; None if it has no requests or no outcome yet."""


class FingerprintIndex:
    """Maps fingerprints to rows of the journal that may contain their responses, by 32-bit hash."""

    def __init__(self, sums: NDArray[np.uint32] | None = None, rows: NDArray[np.int64] | None = None) -> None:
        self.hashes = np.empty(0, np.uint32) if sums is None else sums
        self.rows = np.empty(0, np.int64) if rows is None else rows

    @property
    def next_row(self) -> int:
        """The first row that is not indexed yet."""
        return int(self.rows.max()) + 1 if len(self.rows) else 0

    def add(self, entries: Sequence[tuple[str, int]]) -> None:
        """Add (fingerprint, row) pairs."""
        if not entries:
            return
        sums = np.fromiter((zlib.crc32(name.encode()) for name, _ in entries), np.uint32, len(entries))
        rows = np.fromiter((row for _, row in entries), np.int64, len(entries))
        sums, rows = np.concatenate((self.hashes, sums)), np.concatenate((self.rows, rows))
        order = np.argsort(sums, kind="stable")
        self.hashes, self.rows = sums[order], rows[order]

    def find(self, names: Sequence[str]) -> list[int]:
        """Return rows that may contain these fingerprints; callers must verify them."""
        if not len(self.hashes) or not names:
            return []
        wanted = np.unique(np.fromiter((zlib.crc32(name.encode()) for name in names), np.uint32, len(names)))
        low = np.searchsorted(self.hashes, wanted, side="left")
        high = np.searchsorted(self.hashes, wanted, side="right")
        single = high - low == 1
        found: list[int] = self.rows[low[single]].tolist()
        for one, other in zip(low[~single].tolist(), high[~single].tolist(), strict=True):
            found += self.rows[one:other].tolist()
        return found


@dataclass(slots=True)
class RowReader:
    """Converts rows, and collects task, metric and category codes."""

    journal: Journal
    fingerprints: FingerprintIndex
    tasks: dict[str, int]
    """Code of each task."""

    metrics: dict[str, list[tuple[str, str]]]
    categories: dict[str, dict[str, int]] = field(default_factory=dict)
    """Code of each value of each category field."""

    excluded_fields: set[str] = field(default_factory=set)
    """Fields that are not categories."""

    def read_columns(self, task: str, first: int, rows: Sequence[Row]) -> tuple[Columns, list[str]]:
        """Return documents of a task as columns, and their searchable texts."""
        count = len(rows)
        scores = np.full((MAX_METRICS, count), np.nan)
        fields = _parse_json_texts(row[1] for row in rows)
        texts, lengths = self._read_texts(rows, fields)
        self._read_scores(task, rows, scores)
        ids = np.fromiter((row[0] for row in rows), np.int64, count)
        columns = Columns(
            tasks=list(self.tasks),
            metrics=self.metrics,
            ids=ids,
            task=np.full(count, self.tasks[task], np.int16),
            position=ids - first,
            outcome=np.fromiter((_CODES.get(row[4] or "open", 0) for row in rows), np.int8, count),
            scores=scores,
            length=np.array(lengths, dtype=np.int32),
            categories=self._read_categories(fields),
        )
        return columns, texts

    def _read_scores(self, task: str, rows: Sequence[Row], scores: NDArray[np.float64]) -> None:
        listed = self.metrics.setdefault(task, [])
        slots = {key: at for at, key in enumerate(listed)}
        for at, verdicts in enumerate(_parse_json_texts(row[5] for row in rows)):
            for pipeline, metric, kind, value, _ in verdicts or ():
                if kind not in ("score", "evidence"):
                    continue
                number = decode_verdict_value(value) if type(value) is str else value
                if kind == "evidence":
                    number = compute_document_value(metric, number)
                    if number is None:
                        continue
                slot = slots.get((pipeline, metric))
                if slot is None:
                    if len(listed) >= MAX_METRICS:
                        continue
                    slot = slots[pipeline, metric] = len(listed)
                    listed.append((pipeline, metric))
                if isinstance(number, (int, float)):
                    scores[slot, at] = number

    def _read_texts(self, rows: Sequence[Row], fields: Sequence[Any]) -> tuple[list[str], list[int]]:
        """Return the searchable text (fields, target, responses) and the length of the responses of each document."""
        names = [parse_fingerprints(row[3]) for row in rows]
        response_texts: dict[str, str] = {}
        found = self.fingerprints.find([name for some in names for name in some])
        for start in range(0, len(found), _LOOKUP_BATCH):
            chosen = ",".join(map(str, found[start : start + _LOOKUP_BATCH]))
            for fingerprint, text in self.journal.query(_SELECT_TEXTS.format(chosen)):
                response_texts[fingerprint] = (
                    text if isinstance(text, str) else text.decode("utf-8", "replace")
                )
        texts, lengths = [], []
        for known, target, some in zip(fields, _parse_json_texts(row[2] for row in rows), names, strict=True):
            words: list[str] = []
            _collect_strings(known, words)
            _collect_strings(target, words)
            responses = [response_texts[name] for name in some if name in response_texts]
            texts.append("\n".join([*words, *responses]))
            lengths.append(sum(map(len, responses)))
        return texts, lengths

    def _read_categories(self, fields: Sequence[Any]) -> dict[str, Category]:
        codes: dict[str, NDArray[np.int16]] = {}
        for at, known in enumerate(fields):
            for name, value in (known or {}).items():
                if name in self.excluded_fields:
                    continue
                code = self._category_code(name, value)
                if code is not None:
                    if name not in codes:
                        codes[name] = np.full(len(fields), -1, np.int16)
                    codes[name][at] = code
        return {
            name: Category(self.categories[name], codes.get(name, np.full(len(fields), -1, np.int16)))
            for name in self.categories
        }

    def _category_code(self, name: str, value: Any) -> int | None:
        """Return the code of a value; None if there is no value or the field is not a category."""
        kind = type(value)
        if value is None:
            return None
        if kind not in (str, int, bool) or (kind is str and len(value) > _MAX_VALUE_LENGTH):
            self._exclude_field(name)
            return None
        known = self.categories.get(name)
        if known is None:
            if len(self.categories) >= _MAX_CATEGORIES:
                self._exclude_field(name)
                return None
            known = self.categories[name] = {}
        text = str(value)
        code = known.get(text)
        if code is None:
            if len(known) >= MAX_CATEGORY_VALUES:
                self._exclude_field(name)
                return None
            code = known[text] = len(known)
        return code

    def _exclude_field(self, name: str) -> None:
        self.excluded_fields.add(name)
        self.categories.pop(name, None)


def compute_document_value(metric: str, evidence: Any) -> float | None:
    """Return the value of a corpus metric for one document; None if its evidence is not a pair of numbers.

    An error rate is (errors, units); perplexity and bits per byte are (log-likelihood, units).

    >>> compute_document_value("word_error_rate", (1, 4)), compute_document_value("bleu", ("a", "b"))
    (0.25, None)
    """
    if not isinstance(evidence, (list, tuple)) or len(evidence) != 2:
        return None
    if any(isinstance(part, bool) or not isinstance(part, (int, float)) for part in evidence):
        return None
    total, units = evidence
    if units <= 0:
        return None
    if "perplexity" in metric:
        return math.exp(min(-total / units, 700.0))
    if "bits_per" in metric:
        return float(-total / units / math.log(2))
    return float(total / units)


def _parse_json_texts(texts: Iterator[str | None]) -> list[Any]:
    """Decode JSON texts as one array, which is three times as fast as one by one."""
    decoded: list[Any] = parse_json(f"[{','.join(text or 'null' for text in texts)}]")
    return decoded


def parse_fingerprints(requests: str | None) -> list[str]:
    """Return the fingerprints of the requests of a document without decoding its prompts."""
    if requests is None:
        return []
    listed = requests.rpartition('"requests": ')[2][:-1]
    return [request[5] for request in parse_json(listed)] if listed else []


def _collect_strings(value: Any, into: list[str]) -> None:
    if type(value) is str:
        into.append(value)
    elif isinstance(value, Mapping):
        for one in value.values():
            _collect_strings(one, into)
    elif isinstance(value, list):
        for one in value:
            _collect_strings(one, into)
    elif type(value) in (int, float):
        into.append(str(value))
