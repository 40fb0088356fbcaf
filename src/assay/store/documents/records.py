"""Documents as plain records for exports: requests, responses, answers, verdicts and ending."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from assay.core.records.responses import LogProbability, Response
from assay.store.journal.journal import Journal
from assay.store.journal.rows import decode_verdict_value, encode_calls, get_request_options

__all__ = ["read_document_records"]

_BATCH_SIZE = 64
"""Documents whose responses are read together."""

_SELECT_DOCUMENTS = """
SELECT a.id - t.first, a.fields, a.target, a.unchecked_requests, j.outcome, j.why, j.unchecked_answers, j.unchecked_verdicts
FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN judged j ON j.id = a.id
WHERE t.name = ? ORDER BY a.id
"""
_SELECT_CHOSEN = _SELECT_DOCUMENTS.replace(
    "WHERE t.name = ?", "WHERE t.name = ? AND a.id - t.first IN (SELECT value FROM json_each(?))"
)


def read_document_records(
    journal: Journal, task: str, documents: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one record per document in document order, including failed and unfinished ones.

    `documents`: only the documents with these numbers.
    """
    facts = journal.read_facts()
    settings = {key.partition(":")[2]: value for key, value in facts.items() if key.startswith("settings:")}
    rows = (
        journal.query(_SELECT_DOCUMENTS, (task,))
        if documents is None
        else journal.query(_SELECT_CHOSEN, (task, json.dumps(list(documents))))
    )
    repeats = _repeats(journal, task) if facts.get("repeats") else {}
    variant = facts.get("tasks", {}).get(task, {}).get("variant", {}).get("name")
    tokens = any(True for _ in journal.query("SELECT 1 FROM tokens LIMIT 1"))
    while batch := list(islice(rows, _BATCH_SIZE)):
        contents = [json.loads(row[3]) for row in batch]
        fingerprints = [request[5] for content in contents for request in content["requests"]]
        responses = journal.find(fingerprints, tokens=tokens)
        for row, content in zip(batch, contents, strict=True):
            document, fields, target, _, outcome, why, answers, verdicts = row
            yield {
                "task": task,
                **({"variant": variant} if variant else {}),
                "document": document,
                "outcome": outcome or "open",
                "why": why or "",
                "fields": json.loads(fields),
                "target": json.loads(target)["target"],
                "requests": [
                    _request(request, content, responses, settings) for request in content["requests"]
                ],
                "answers": json.loads(answers) if answers else {},
                "verdicts": [
                    {
                        "filter": pipeline,
                        "metric": metric,
                        "kind": kind,
                        "value": decode_verdict_value(value),
                        **({"why": reason} if reason else {}),
                    }
                    for pipeline, metric, kind, value, reason in (json.loads(verdicts) if verdicts else ())
                ],
                **({"repeats": repeats[document]} if document in repeats else {}),
            }


def _repeats(journal: Journal, task: str) -> dict[int, list[dict[str, Any]]]:
    """Return the repeat scores by document, for tasks with repeats."""
    found: dict[int, list[dict[str, Any]]] = {}
    for repeats in journal.read_repeats(task):
        scores = {metric: list(values) for metric, values in repeats.scores.items()}
        entry = {"filter": repeats.pipeline, "answers": list(repeats.answers), "scores": scores}
        found.setdefault(repeats.document, []).append(entry)
    return found


def _request(
    request: list[Any],
    content: Mapping[str, Any],
    responses: Mapping[str, Response],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    _, repeat, kind, prompt, argument, fingerprint, *_ = request
    record: dict[str, Any] = {"kind": kind, "prompt": content["prompts"][prompt]}
    if kind == "likelihood":
        record["continuation"] = argument
    elif kind == "generate":
        record |= {"settings": settings.get(argument, {}), **get_request_options(content, request)}
    if repeat:
        record["repeat"] = repeat
    response = responses.get(fingerprint)
    return {**record, "fingerprint": fingerprint, **(_response(response) if response else {"response": None})}


def _response(response: Response) -> dict[str, Any]:
    value = response.value
    record: dict[str, Any] = {"response": value if isinstance(value, str) else None}
    if isinstance(value, LogProbability):
        record = {"response": None, "logprob": value.total, "greedy": value.greedy}
    if response.finish:
        record["finish"] = response.finish
    if response.usage is not None:
        record |= {"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens}
        if response.usage.cached_tokens:
            record["cached_tokens"] = response.usage.cached_tokens
        if response.usage.reasoning_tokens:
            record["reasoning_tokens"] = response.usage.reasoning_tokens
        if response.usage.cost_usd is not None:
            record["cost_usd"] = response.usage.cost_usd
    if response.reasoning is not None:
        record["reasoning"] = response.reasoning
    if response.tool_calls:
        record["tool_calls"] = encode_calls(response.tool_calls)
    if response.served:  # only if it differs from the default
        record["served"] = response.served
    if response.tokens is not None:
        record["tokens"] = [*map(list, zip(response.tokens.pieces, response.tokens.logprobs, strict=True))]
    return record
