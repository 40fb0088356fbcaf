"""Reads values of documents from the journal that the index does not contain: answers, tokens, fields, judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from assay.store.filters.names import NameInfo
from assay.store.index.columns import Columns
from assay.store.index.document_index import DocumentIndex
from assay.store.index.row_reader import compute_document_value, parse_fingerprints
from assay.store.journal.rows import decode_verdict_value, parse_json

__all__ = ["PART_SEPARATOR", "Scalar", "format_answer", "format_scalar", "read_details", "read_values"]

PART_SEPARATOR = "\x1f"
"""Separates the values of a name with several values, such as `judge`."""

Scalar = str | float | None
Rows = np.ndarray[Any, np.dtype[np.int64]]

_BATCH_SIZE = 2000
_LOOKUP_BATCH = 1000
_SELECT_JUDGED = "SELECT j.id, j.{} FROM json_each(?) i JOIN main.judged j ON j.id = i.value"
_SELECT_FIELDS = "SELECT a.id, a.fields FROM json_each(?) i JOIN main.asked a ON a.id = i.value"
_SELECT_TARGETS = "SELECT a.id, a.target FROM json_each(?) i JOIN main.asked a ON a.id = i.value"
_SELECT_REQUESTS = "SELECT a.id, a.requests FROM json_each(?) i JOIN main.asked a ON a.id = i.value"
_SELECT_ANSWERED = "SELECT fingerprint, {} FROM main.answered WHERE id IN ({})"
_SELECT_JUDGES = "SELECT document, judge FROM main.judge_requests WHERE task = ? AND document BETWEEN ? AND ?"
_SELECT_JUDGE_REPLIES = (
    "SELECT r.document, s.text FROM main.judge_requests r JOIN main.answered s ON s.fingerprint = r.fingerprint"
    " WHERE r.task = ? AND r.document BETWEEN ? AND ? AND s.text IS NOT NULL"
)


def read_values(index: DocumentIndex, columns: Columns, info: NameInfo, rows: Rows) -> Iterator[list[Scalar]]:
    """Yield the values of a name for some rows of the index, a batch at a time, in the given order."""
    readers: dict[str, Callable[..., dict[int, Scalar]]] = {
        "judged": _read_judged,
        "field": _read_field,
        "target": _read_target,
        "prompt": _read_prompt,
        "response": _read_responses,
        "judge": _read_judges,
    }
    reader = readers[info.source]
    with index.journal.report_decode_errors():
        for start in range(0, len(rows), _BATCH_SIZE):
            batch = rows[start : start + _BATCH_SIZE]
            ids = columns.ids[batch].tolist()
            found = reader(index, columns, info, batch, ids)
            yield [found.get(number) for number in ids]


def format_scalar(value: Any) -> Scalar:
    """Return a value of a document as it is compared: text; None for a missing value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:.15g}" if isinstance(value, float) else str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def format_answer(values: Sequence[Any]) -> str:
    """Return the answer of one filter as text; for choices, the number of the most likely one."""
    scored = [
        value[0]
        for value in values
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], (int, float))
    ]
    if len(scored) > 1 and len(scored) == len(values):
        return str(scored.index(max(scored)))
    return "\n".join(str(format_scalar(value) or "") for value in values)


def _read_judged(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    found: dict[int, Scalar] = {}
    column = {"why": "why", "answer": "answers"}.get(info.key if info.kind == "text" else "", "verdicts")
    rows = list(index.journal.query(_SELECT_JUDGED.format(column), (json.dumps(ids),)))
    if column == "why":
        return dict(rows)
    contents = parse_json(f"[{','.join(content or 'null' for _, content in rows)}]")
    for (number, _), content in zip(rows, contents, strict=True):
        if column == "answers":
            values = (
                (content or {}).get(info.part) if info.part else next(iter((content or {}).values()), None)
            )
            found[number] = None if values is None else format_answer(values)
            continue
        for pipeline, metric, kind, value, _ in content or ():
            if metric == info.key and kind in ("score", "evidence") and info.part in ("", pipeline):
                score = decode_verdict_value(value)
                if kind == "evidence":
                    score = compute_document_value(metric, score)
                if isinstance(score, (int, float)):
                    found[number] = float(score)
                    break
    return found


def _read_field(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    rows = list(index.journal.query(_SELECT_FIELDS, (json.dumps(ids),)))
    fields = parse_json(f"[{','.join(row[1] or 'null' for row in rows)}]")
    return {
        number: format_scalar(_find_field(known, info.key))
        for (number, _), known in zip(rows, fields, strict=True)
    }


def _find_field(fields: Any, name: str) -> Any:
    """Return a field; `a.b` is the field `b` of the field `a` if there is no field `a.b`."""
    if not isinstance(fields, dict):
        return None
    if name in fields:
        return fields[name]
    head, dot, rest = name.partition(".")
    return _find_field(fields.get(head), rest) if dot else None


def _read_target(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    rows = list(index.journal.query(_SELECT_TARGETS, (json.dumps(ids),)))
    targets = parse_json(f"[{','.join(row[1] or 'null' for row in rows)}]")
    return {
        number: format_scalar((target or {}).get("target"))
        for (number, _), target in zip(rows, targets, strict=True)
    }


def _read_prompt(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    return {
        number: "\n".join(parse_json(requests)["prompts"]) if requests else None
        for number, requests in index.journal.query(_SELECT_REQUESTS, (json.dumps(ids),))
    }


def _read_responses(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    column = "text" if info.key == "response" else "details"
    combine = _join_texts if column == "text" else _combine_details
    return {
        number: combine(info.key, responses)
        for number, responses in _find_responses(index, ids, column).items()
    }


def read_details(
    index: DocumentIndex, columns: Columns, names: Sequence[str], rows: Rows
) -> Iterator[dict[str, list[Scalar]]]:
    """Yield the values of several details of responses, such as token counts, which are read together."""
    with index.journal.report_decode_errors():
        for start in range(0, len(rows), _BATCH_SIZE):
            ids = columns.ids[rows[start : start + _BATCH_SIZE]].tolist()
            found = _find_responses(index, ids, "details")
            yield {name: [_combine_details(name, found.get(number, [])) for number in ids] for name in names}


def _find_responses(index: DocumentIndex, ids: list[int], column: str) -> dict[int, list[Any]]:
    """Return the texts or the details of the responses of each document; missing ones are left out."""
    names = {
        number: parse_fingerprints(requests)
        for number, requests in index.journal.query(_SELECT_REQUESTS, (json.dumps(ids),))
    }
    wanted = {name for listed in names.values() for name in listed}
    known: dict[str, Any] = {}
    places = index.fingerprints.find(list(wanted))
    for start in range(0, len(places), _LOOKUP_BATCH):
        chosen = ",".join(map(str, places[start : start + _LOOKUP_BATCH]))
        some = [
            row for row in index.journal.query(_SELECT_ANSWERED.format(column, chosen)) if row[0] in wanted
        ]
        if column == "text":
            known.update(some)
        else:
            contents = parse_json(f"[{','.join(content or 'null' for _, content in some)}]")
            known.update((name, content) for (name, _), content in zip(some, contents, strict=True))
    return {
        number: [known[name] for name in listed if known.get(name) is not None]
        for number, listed in names.items()
    }


def _join_texts(key: str, texts: list[Any]) -> Scalar:
    if not texts:
        return None
    return "\n".join(text if isinstance(text, str) else text.decode("utf-8", "replace") for text in texts)


def _combine_details(key: str, details: list[dict[str, Any]]) -> Scalar:
    """Return the sum of a number over the responses of a document, or their texts."""
    if key == "finish":
        return (
            PART_SEPARATOR.join(dict.fromkeys(one["finish"] for one in details if one.get("finish"))) or None
        )
    if key == "reasoning":
        return "\n".join(one["reasoning"] for one in details if one.get("reasoning")) or None
    names = ("input_tokens", "output_tokens") if key == "tokens" else (key,)
    numbers = [one[name] for one in details for name in names if isinstance(one.get(name), (int, float))]
    return float(sum(numbers)) if numbers else None


def _read_judges(
    index: DocumentIndex, columns: Columns, info: NameInfo, batch: Rows, ids: list[int]
) -> dict[int, Scalar]:
    """Read the judges of documents, or their replies; the documents of a batch are usually close to each other."""
    statement = _SELECT_JUDGES if info.key == "judge" else _SELECT_JUDGE_REPLIES
    texts: dict[tuple[int, int], dict[str, None]] = {}
    tasks, positions = columns.task[batch], columns.position[batch]
    for task in np.unique(tasks).tolist():
        places = positions[tasks == task]
        arguments = (columns.tasks[task], int(places.min()), int(places.max()))
        for document, text in index.journal.query(statement, arguments):
            shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
            texts.setdefault((task, document), {})[shown] = None
    return {
        number: PART_SEPARATOR.join(texts[place])
        for number, place in zip(ids, zip(tasks.tolist(), positions.tolist(), strict=True), strict=True)
        if place in texts
    }
