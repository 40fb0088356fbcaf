"""Selects the documents of a run that match a filter expression.

Cheap conditions come first: an expensive one (text of responses) is evaluated only for documents that can still match.
Values that the index does not contain are read from the journal; a column that was read for the whole run is kept, in memory
and beside the index, so that the next expression with the same name is as fast as one on indexed columns.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.store.database.locks import is_locked
from assay.store.filters.column_reader import PART_SEPARATOR, Scalar, read_details, read_values
from assay.store.filters.names import NameCatalog, NameInfo
from assay.store.filters.patterns import PatternTooSlow
from assay.store.filters.syntax import (
    And,
    Condition,
    Expression,
    FilterError,
    Membership,
    Name,
    Not,
    Or,
    Search,
    Value,
    parse_expression,
)
from assay.store.index.columns import MAX_METRICS, OUTCOMES, Columns, is_perplexity
from assay.store.index.document_index import DocumentIndex
from assay.store.index.text_search import MAX_TEXT_BYTES, parse_search_words
from assay.store.runs.labels import Label, group_labels, read_run_labels

__all__ = [
    "EvaluationCancelled",
    "build_name_catalog",
    "check_expression",
    "match_documents",
    "read_display_values",
]

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

_MAX_ROWS_READ_DIRECTLY = 2000
_MAX_SHARE_READ_DIRECTLY = 0.02
"""Up to this number or share of the documents, values are read for these documents only; for more, the whole column is
read and kept."""

_MIN_ROWS_FOR_PREFILTER = 2000
_MAX_KEPT_CHARACTERS = 50_000_000
_COST = {"index": 0, "label": 0, "judged": 2, "target": 3, "field": 3, "judge": 4, "response": 5, "prompt": 6}
_SEARCH_COST = 1
_OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}


class EvaluationCancelled(AssayError):
    """The documents of an expression are not needed any more."""


@dataclass(slots=True)
class _NumberColumn:
    numbers: NDArray[np.float64]
    """NaN for documents without a value."""


@dataclass(slots=True)
class _TextColumn:
    """Texts by code: a condition is evaluated once for each distinct text."""

    texts: list[str]
    codes: NDArray[np.int32]
    """-1 for documents without a value."""


_Column = _NumberColumn | _TextColumn


def build_name_catalog(index: DocumentIndex) -> NameCatalog:
    """Return the names that expressions can use for the documents of an index."""
    metrics = [str(metric) for facts in index.task_facts.values() for metric in facts.get("metrics", ())]
    return NameCatalog(index.columns, index.excluded_fields, metrics)


def check_expression(index: DocumentIndex, text: str) -> Expression | None:
    """Parse an expression and resolve its names; None for an empty one.

    Raises:
        FilterError: The expression is invalid for this run.
    """
    expression = parse_expression(text)
    if expression is not None:
        _check(expression, build_name_catalog(index))
    return expression


def match_documents(
    index: DocumentIndex, columns: Columns, text: str, *, is_cancelled: Callable[[], bool] | None = None
) -> Mask:
    """Return which rows of the columns match an expression.

    `is_cancelled` is called while texts are read, which can take seconds.

    Raises:
        FilterError: The expression is invalid for this run.
        EvaluationCancelled: `is_cancelled` returned true.
    """
    expression = parse_expression(text)
    if expression is None:
        return np.ones(len(columns), dtype=bool)
    catalog = build_name_catalog(index)
    _check(expression, catalog)
    evaluator = _Evaluator(index, columns, catalog, is_cancelled)
    return evaluator.evaluate(expression, np.arange(len(columns)))


def read_display_values(index: DocumentIndex, columns: Columns, name: str, rows: Rows) -> list[Scalar]:
    """Return the values of a name for a few rows, for display; None for missing values.

    Raises:
        FilterError: There is no such name.
    """
    catalog = build_name_catalog(index)
    parsed = parse_expression(name)
    if not isinstance(parsed, Condition) or parsed.operator:
        raise FilterError(f"`{name}` is not a name")
    info = catalog.resolve(parsed.name)
    evaluator = _Evaluator(index, columns, catalog)
    if info.kind == "flag":
        return ["yes" if one else "" for one in evaluator.evaluate(parsed, rows).tolist()]
    column = evaluator.get_column(info, rows)
    if isinstance(column, _NumberColumn):
        return [None if math.isnan(one) else one for one in column.numbers.tolist()]
    return [
        None if code < 0 else column.texts[code].replace(PART_SEPARATOR, ", ")
        for code in column.codes.tolist()
    ]


def _check(expression: Expression, catalog: NameCatalog) -> None:
    """Raise an error for unknown names and for conditions that make no sense."""
    match expression:
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                _check(operand, catalog)
        case Not(operand=operand):
            _check(operand, catalog)
        case Membership(name=name, values=values):
            info = catalog.resolve(name)
            for value in values:
                _check_condition(info, name, "=", value)
        case Condition(name=name, operator=operator, value=value):
            info = catalog.resolve(name)
            if value is not None:
                _check_condition(info, name, operator, value)


def _check_condition(info: NameInfo, name: Name, operator: str, value: Value) -> None:
    if info.kind == "flag":
        raise FilterError(
            f"`{info.name}` is true or false",
            position=name.start,
            length=value.end - name.start,
            hint=f"write `{info.name}` or `not {info.name}`",
        )
    if info.kind == "number":
        if operator == "~":
            raise FilterError(
                f"`{info.name}` is a number",
                position=value.start,
                length=value.end - value.start,
                hint=f"compare it with =, !=, <, <=, > or >=: `{info.name}<1`",
            )
        if value.number is None:
            raise FilterError(
                f"`{info.name}` is a number, `{value.text}` is not",
                position=value.start,
                length=value.end - value.start,
                hint=f"for example `{info.name}<1`",
            )
    if (
        info.values
        and operator == "="
        and info.name in ("ending", "task", "label")
        and value.text not in info.values
    ):
        raise FilterError(
            f"no {info.name} is called `{value.text}`",
            position=value.start,
            length=value.end - value.start,
            hint=f"one of: {', '.join(info.values[:12])}",
        )


class _Evaluator:
    """Evaluates one expression."""

    def __init__(
        self,
        index: DocumentIndex,
        columns: Columns,
        catalog: NameCatalog,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._is_cancelled = is_cancelled
        self._index = index
        self._columns = columns
        self._catalog = catalog
        self._labels: Mapping[tuple[str, int], list[Label]] | None = None
        self._searched: dict[str, Mask] = {}

    def evaluate(self, expression: Expression, rows: Rows) -> Mask:
        """Return for each of the rows whether it matches."""
        match expression:
            case And(operands=operands):
                return self._evaluate_all(operands, rows, matching=True)
            case Or(operands=operands):
                return self._evaluate_all(operands, rows, matching=False)
            case Not(operand=operand):
                return ~self.evaluate(operand, rows)
            case Search(text=text):
                return self._search(text)[rows]
            case Membership(name=name, values=values):
                info = self._catalog.resolve(name)
                found = np.zeros(len(rows), dtype=bool)
                column = None if info.long else self.get_column(info, rows)
                for one in values:
                    found |= self._compare(info, "=", one, rows, column)
                return found
            case Condition(name=name, operator=operator, value=value):
                info = self._catalog.resolve(name)
                if value is None:
                    return self._evaluate_name(info, rows)
                if info.key == "response" and operator == "~" and len(rows) > _MIN_ROWS_FOR_PREFILTER:
                    return self._compare_prefiltered(info, value, rows)
                column = None if info.long else self.get_column(info, rows)
                return self._compare(info, operator, value, rows, column)

    def _evaluate_all(self, operands: Iterable[Expression], rows: Rows, *, matching: bool) -> Mask:
        """Evaluate `and` (`matching`) or `or`: cheap operands first, each for the documents that are undecided."""
        undecided = np.arange(len(rows))
        for operand in sorted(operands, key=self._estimate_cost):
            if not len(undecided):
                break
            result = self.evaluate(operand, rows[undecided])
            undecided = undecided[result if matching else ~result]
        found = np.full(len(rows), not matching)
        found[undecided] = matching
        return found

    def _estimate_cost(self, expression: Expression) -> int:
        match expression:
            case And(operands=operands) | Or(operands=operands):
                return max(map(self._estimate_cost, operands))
            case Not(operand=operand):
                return self._estimate_cost(operand)
            case Search():
                return _SEARCH_COST
            case Condition(name=name) | Membership(name=name):
                info = self._catalog.resolve(name)
                return 0 if self._is_indexed(info) else _COST[info.source]

    def _is_indexed(self, info: NameInfo) -> bool:
        if info.source == "field":
            return info.key in self._columns.categories
        if info.source == "judged" and info.kind == "number":
            return self._find_score_slots(info) is not None
        return info.source in ("index", "label")

    def _search(self, text: str) -> Mask:
        if text not in self._searched:
            words = parse_search_words(f'"{text}"') if '"' not in text else parse_search_words(text)
            found = self._index.search(words, len(self._columns)) if words else None
            self._searched[text] = np.ones(len(self._columns), dtype=bool) if found is None else found
        return self._searched[text]

    # --- conditions --------------------------------------------------------------------------------

    def _evaluate_name(self, info: NameInfo, rows: Rows) -> Mask:
        """Evaluate a name on its own: a flag, else whether the document has a value that is not false or empty."""
        columns = self._columns
        if info.source == "label" and info.kind == "flag":
            return self._match_labels(lambda label: label.star or info.key == "labelled")[rows]
        if info.source == "index" and info.key in _OUTCOME_CODES:
            ended: Mask = columns.outcome[rows] == _OUTCOME_CODES[info.key]
            return ended
        if info.source == "index" and info.kind == "flag":
            scores = columns.scores[0][rows]
            full = self._find_full_scores()[columns.task[rows]]
            has_full_score: Mask = scores == full
            if info.key == "right":
                return has_full_score
            is_wrong: Mask = ~np.isnan(scores) & ~np.isnan(full) & ~has_full_score
            return is_wrong
        if info.long:
            return self._stream(info, rows, bool)
        column = self.get_column(info, rows)
        if isinstance(column, _NumberColumn):
            return ~np.isnan(column.numbers)
        return _select_codes(column, lambda text: text not in ("", "false", "False", "[]", "{}"))

    def _find_full_scores(self) -> NDArray[np.float64]:
        """Return the full score of each task: 1, or the best score if that is better; 0 if lower is better."""
        columns = self._columns
        lower = {
            (one.task, one.pipeline, one.metric)
            for one in self._index.journal.read_estimates()
            if one.higher_is_better is False
        }
        full = []
        for number, task in enumerate(columns.tasks):
            if columns.metrics.get(task) and is_perplexity(columns.metrics[task][0][1]):
                full.append(math.nan)  # a perplexity is neither right nor wrong
                continue
            scores = columns.scores[0][columns.task == number]
            scores = scores[~np.isnan(scores)]
            if columns.metrics.get(task) and (task, *columns.metrics[task][0]) in lower:
                full.append(min(0.0, float(scores.min(initial=0.0))))
            else:
                full.append(max(1.0, float(scores.max(initial=1.0))))
        return np.array(full)

    def _compare(
        self, info: NameInfo, operator: str, value: Value, rows: Rows, column: _Column | None
    ) -> Mask:
        if isinstance(column, _NumberColumn):
            assert value.number is not None
            compare: dict[str, Callable[[Any, Any], Any]] = {
                "=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
            }  # fmt: skip
            with np.errstate(invalid="ignore"):
                result: Mask = compare[operator](column.numbers, value.number)
            return result
        test = _build_test(operator, value)
        if info.several:
            single = test

            def test(text: str) -> bool:
                return any(map(single, text.split(PART_SEPARATOR)))

        try:
            if column is None:
                return self._stream(info, rows, test)
            return _select_codes(column, test)
        except PatternTooSlow as error:
            raise FilterError(
                error.what, position=value.start, length=value.end - value.start, hint=error.hint
            ) from None

    def _compare_prefiltered(self, info: NameInfo, value: Value, rows: Rows) -> Mask:
        """Search the responses of documents whose indexed text contains a part that every match contains."""
        if value.pattern is not None:
            words = [literal for literal in value.pattern.literals if len(literal) > 1]
        else:
            words = [word for word in value.text.lower().split() if word.isascii()]
        undecided = np.arange(len(rows))
        if words:
            possible = self._index.search(words, len(self._columns)) | self._find_cut_texts()
            undecided = undecided[possible[rows]]
        if not _build_test("~", value)(""):  # documents without a response, such as those of multiple choice
            undecided = undecided[self._columns.length[rows[undecided]] > 0]
        found = np.zeros(len(rows), dtype=bool)
        found[undecided] = self._compare(info, "~", value, rows[undecided], None)
        return found

    def _find_cut_texts(self) -> Mask:
        """Return which documents are too long to be indexed as a whole."""
        found = np.zeros(len(self._columns), dtype=bool)
        with self._index.lock:
            starts, _, owners = self._index.texts.read_positions()
            sizes = np.diff(np.append(starts, self._index.texts.size))
        cut = owners[(sizes >= MAX_TEXT_BYTES - 3) & (owners >= 0)]
        found[cut[cut < len(found)]] = True
        return found

    def _stream(self, info: NameInfo, rows: Rows, test: Callable[[str], bool]) -> Mask:
        """Test long values as they are read."""
        results: list[bool] = []
        for values in self._read(info, rows):
            results += [value is not None and test(str(value)) for value in values]
        return np.array(results, dtype=bool)

    def _read(self, info: NameInfo, rows: Rows) -> Iterator[list[Scalar]]:
        for values in read_values(self._index, self._columns, info, rows):
            self._check_cancelled()
            yield values

    def _check_cancelled(self) -> None:
        if self._is_cancelled is not None and self._is_cancelled():
            raise EvaluationCancelled("another filter replaced this one")

    # --- columns -----------------------------------------------------------------------------------

    def get_column(self, info: NameInfo, rows: Rows) -> _Column:
        """Return the values of a name for the rows."""
        indexed = self._find_indexed_column(info)
        if indexed is not None:
            return _take(indexed, rows)
        if info.source == "label":
            return _take(self._read_label_column(info), rows)
        cache = _get_cache(self._index)
        known = cache.find(info)
        few = max(_MAX_ROWS_READ_DIRECTLY, int(_MAX_SHARE_READ_DIRECTLY * len(self._columns)))
        if known is None and (info.long or len(rows) <= few):
            return _build_column(info, self._read(info, rows))
        if known is None or len(_get_codes(known)) < len(self._columns):
            known = self._read_whole_column(info, cache)
        return _take(known, rows)

    def _read_whole_column(self, info: NameInfo, cache: _ColumnCache) -> _Column:
        everything = np.arange(len(self._columns))
        if info.source != "response":
            column = _build_column(info, self._read(info, everything))
            cache.add(info, column)
            return column
        # token counts, times and costs are in the same rows of the journal: read all of them at once
        details = {
            one.key: one for one in self._catalog.list_names() if one.source == "response" and not one.long
        }
        values: dict[str, list[Scalar]] = {name: [] for name in details}
        for batch in read_details(self._index, self._columns, list(details), everything):
            self._check_cancelled()
            for name, listed in batch.items():
                values[name] += listed
        columns = {name: _build_column(details[name], [listed]) for name, listed in values.items()}
        for name, column in columns.items():
            cache.add(details[name], column)
        return columns[info.key]

    def _find_indexed_column(self, info: NameInfo) -> _Column | None:
        columns = self._columns
        if info.source == "index":
            match info.key:
                case "score":
                    return _NumberColumn(columns.scores[0])
                case "length":
                    return _NumberColumn(columns.length.astype(np.float64))
                case "document":
                    return _NumberColumn(columns.position.astype(np.float64))
                case "ending":
                    return _TextColumn(list(OUTCOMES), columns.outcome.astype(np.int32))
                case _:
                    return _TextColumn(list(columns.tasks), columns.task.astype(np.int32))
        if info.source == "field" and (category := columns.categories.get(info.key)) is not None:
            return _TextColumn(list(category.values), category.codes.astype(np.int32))
        if info.source == "judged" and info.kind == "number":
            slots = self._find_score_slots(info)
            if slots is not None:
                numbers = np.full(len(columns), np.nan)
                for task, slot in slots.items():
                    mine = columns.task == task
                    numbers[mine] = columns.scores[slot][mine]
                return _NumberColumn(numbers)
        return None

    def _find_score_slots(self, info: NameInfo) -> dict[int, int] | None:
        """Return the score column of a metric by task; None if the index does not have all scores of the metric."""
        slots: dict[int, int] = {}
        for number, task in enumerate(self._columns.tasks):
            listed = self._columns.metrics.get(task, [])
            for slot, (pipeline, metric) in enumerate(listed):
                if metric == info.key and info.part in ("", pipeline):
                    slots[number] = slot
                    break
            else:
                if len(listed) >= MAX_METRICS:
                    return None
        return slots

    def _group_labels(self) -> Mapping[tuple[str, int], list[Label]]:
        if self._labels is None:
            self._labels = group_labels(read_run_labels(self._index.journal.path.parent))
        return self._labels

    def _match_labels(self, test: Callable[[Label], bool]) -> Mask:
        found = np.zeros(len(self._columns), dtype=bool)
        for row, labels in self._iterate_labelled_rows():
            found[row] = any(map(test, labels))
        return found

    def _iterate_labelled_rows(self) -> Iterable[tuple[int, list[Label]]]:
        columns = self._columns
        labels: dict[str, dict[int, list[Label]]] = {}
        for (task, document), listed in self._group_labels().items():
            labels.setdefault(task, {})[document] = listed
        for number, task in enumerate(columns.tasks):
            known = labels.get(task, {})
            mine = (columns.task == number) & np.isin(columns.position, list(known))
            for row in np.flatnonzero(mine).tolist():
                yield row, known[int(columns.position[row])]

    def _read_label_column(self, info: NameInfo) -> _TextColumn:
        texts: list[str] = []
        codes = np.full(len(self._columns), -1, np.int32)
        names = {"label": "verdict", "note": "note", "labeller": "who"}
        for row, labels in self._iterate_labelled_rows():
            values = [getattr(label, names[info.key]) for label in labels]
            if any(values):
                codes[row] = len(texts)
                texts.append(PART_SEPARATOR.join(value for value in values if value))
        return _TextColumn(texts, codes)


def _build_test(operator: str, value: Value) -> Callable[[str], bool]:
    """Return the test of a text value."""
    wanted, number = value.text, value.number
    if operator == "~":
        if value.pattern is not None:
            return value.pattern.matches
        lower = wanted.lower()
        return lambda text: lower in text.lower()
    if operator == "=":
        if number is not None:
            return lambda text: text == wanted or _parse_number(text) == number
        if wanted.lower() in ("true", "false"):
            return lambda text: text.lower() == wanted.lower()
        return lambda text: text == wanted
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "<": lambda one, other: one < other,
        "<=": lambda one, other: one <= other,
        ">": lambda one, other: one > other,
        ">=": lambda one, other: one >= other,
    }
    test = compare[operator]
    if number is None:
        return lambda text: test(text, wanted)
    return lambda text: (found := _parse_number(text)) is not None and test(found, number)


@lru_cache(maxsize=65_536)
def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _select_codes(column: _TextColumn, test: Callable[[str], bool]) -> Mask:
    """Test each distinct text once."""
    used = np.unique(column.codes)
    passed = np.zeros(len(column.texts) + 1, dtype=bool)  # the last entry is for code -1
    for code in used[used >= 0].tolist():
        passed[code] = test(column.texts[code])
    result: Mask = passed[column.codes]
    return result


def _take(column: _Column, rows: Rows) -> _Column:
    if isinstance(column, _NumberColumn):
        return _NumberColumn(column.numbers[rows])
    return _TextColumn(column.texts, column.codes[rows])


def _get_codes(column: _Column) -> NDArray[Any]:
    return column.numbers if isinstance(column, _NumberColumn) else column.codes


def _build_column(info: NameInfo, batches: Iterable[list[Scalar]]) -> _Column:
    if info.kind == "number":
        numbers = [math.nan if value is None else float(value) for values in batches for value in values]
        return _NumberColumn(np.array(numbers, dtype=np.float64))
    known: dict[str, int] = {}
    codes: list[int] = []
    for values in batches:
        codes += [-1 if value is None else known.setdefault(str(value), len(known)) for value in values]
    return _TextColumn(list(known), np.array(codes, dtype=np.int32))


# --- kept columns ------------------------------------------------------------------------------------


class _ColumnCache:
    """Columns that were read for all documents of an index: in memory, and beside the index of a run that ended."""

    def __init__(self, index: DocumentIndex) -> None:
        self._folder = index.folder
        self._run_folder = index.journal.path.parent
        self._version = index.version
        self._signature = json.dumps(index.signature)
        self._columns: dict[tuple[str, str, str], _Column] = {}
        self._documents = len(index.columns)

    def is_current(self, index: DocumentIndex) -> bool:
        """Whether nothing was added to the index."""
        return self._version == index.version and self._documents == len(index.columns)

    def find(self, info: NameInfo) -> _Column | None:
        """Return a kept column."""
        key = (info.source, info.key, info.part)
        if key not in self._columns and (stored := self._load(key)) is not None:
            self._columns[key] = stored
        return self._columns.get(key)

    def add(self, info: NameInfo, column: _Column) -> None:
        """Keep a column, unless it is too large."""
        if isinstance(column, _TextColumn) and sum(map(len, column.texts)) > _MAX_KEPT_CHARACTERS:
            return
        key = (info.source, info.key, info.part)
        self._columns[key] = column
        if not is_locked(self._run_folder):
            self._save(key, column)

    def _find_path(self, key: tuple[str, str, str]) -> Path:
        name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self._folder / f"column-{name}.npz"

    def _save(self, key: tuple[str, str, str], column: _Column) -> None:
        content = {"signature": self._signature, "key": list(key)}
        if isinstance(column, _TextColumn):
            content["texts"] = column.texts
        path = self._find_path(key)
        temporary = path.with_suffix(".new.npz")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                temporary,
                content=np.frombuffer(json.dumps(content).encode(), dtype=np.uint8),
                values=_get_codes(column),
            )
            temporary.replace(path)
        except OSError:
            temporary.unlink(
                missing_ok=True
            )  # disk full, or a read-only home folder: the column stays in memory

    def _load(self, key: tuple[str, str, str]) -> _Column | None:
        try:
            with self._find_path(key).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                content, values = json.loads(file["content"].tobytes()), file["values"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        if content.get("signature") != self._signature or content.get("key") != list(key):
            return None
        if len(values) != self._documents:
            return None
        return _TextColumn(content["texts"], values) if "texts" in content else _NumberColumn(values)


_CACHES: WeakKeyDictionary[DocumentIndex, _ColumnCache] = WeakKeyDictionary()


def _get_cache(index: DocumentIndex) -> _ColumnCache:
    known = _CACHES.get(index)
    if known is None or not known.is_current(index):
        known = _CACHES[index] = _ColumnCache(index)
    return known
