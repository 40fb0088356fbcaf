"""Scored documents as rows with the keys of lm-eval: the lines of `samples_<task>.jsonl`, one per document and filter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from assay.core.records.responses import Response
from assay.store.journal.journal import Journal
from assay.store.journal.rows import decode_verdict_value, encode_calls

__all__ = ["read_samples"]

_BATCH_SIZE = 64
"""Documents whose responses are read together."""


def read_samples(journal: Journal, task: str) -> Iterator[dict[str, Any]]:
    """Yield rows in document order, filters in pipeline order; only a few documents are in memory at a time."""
    facts = journal.read_facts()
    settings = {key.partition(":")[2]: value for key, value in facts.items() if key.startswith("settings:")}
    about = facts.get("tasks", {}).get(task, {})
    order = {name: at for at, name in enumerate(about.get("pipelines", []))}
    metrics = {name: at for at, name in enumerate(about.get("metrics", []))}
    for document, fields, target, requests, responses, answers, verdicts in _join_documents(journal, task):
        asked = _format_requests(requests, responses, settings)
        listed = sorted(verdicts, key=lambda row: metrics.get(row[1], len(metrics)))
        for pipeline, values in sorted(answers.items(), key=lambda row: order.get(row[0], len(order))):
            scores = {
                metric: decode_verdict_value(value)
                for name, metric, kind, value, _ in listed
                if name == pipeline and kind != "unscored"
            }
            yield {
                "doc_id": document,
                "doc": json.loads(fields),
                **({"prompt_doc": requests["prompt_fields"]} if "prompt_fields" in requests else {}),
                "target": json.loads(target)["target"],
                **asked,
                "filtered_resps": values,
                "filter": pipeline,
                "metrics": list(scores),
                **scores,
            }


def _join_documents(journal: Journal, task: str) -> Iterator[tuple[Any, ...]]:
    """Yield (document, fields, target, requests, responses, answers, verdicts) of all scored documents."""
    judged = journal.read_judged(task)
    ended = next(judged, None)
    asked = journal.read_documents(task)
    while some := list(islice(asked, _BATCH_SIZE)):
        requests = [json.loads(content) for *_, content in some]
        responses = journal.find([request[5] for one in requests for request in one["requests"]])
        for (document, fields, target, _), one in zip(some, requests, strict=True):
            while ended is not None and ended[0] < document:
                ended = next(judged, None)
            if ended is not None and ended[0] == document:
                yield document, fields, target, one, responses, json.loads(ended[1]), json.loads(ended[2])


def _format_requests(
    content: dict[str, Any], known: Mapping[str, Response], settings: dict[str, Any]
) -> dict[str, Any]:
    arguments: list[list[Any]] = []
    responses: list[list[Any]] = []
    last = None
    calls: list[list[Any]] = []
    listed = sorted(content["requests"], key=lambda row: row[:2])
    for number, _, kind, place, argument, fingerprint, *_ in listed:
        if number != last:  # the next choice or round; dialogues of repeats can differ in length
            last = number
            prompt = content["prompts"][place]
            match kind:
                case "generate":
                    arguments.append([prompt, settings.get(argument, {})])
                case "likelihood":
                    arguments.append([prompt, argument])
                case _:
                    arguments.append([prompt])
            responses.append([])
            calls.append([])
        response = known.get(fingerprint)
        responses[-1].append(_response(kind, response))
        calls[-1].append(encode_calls(response.tool_calls) if response is not None else [])
    has_calls = any(one for several in calls for one in several)
    return {"arguments": arguments, "resps": responses, **({"tool_calls": calls} if has_calls else {})}


def _response(kind: str, response: Response | None) -> Any:
    """Return a response in the format of lm-eval; None if the request failed."""
    if response is None or isinstance(response.value, str):
        return None if response is None else response.value
    value = response.value
    return value.total if kind == "rolling" else [value.total, value.greedy]
