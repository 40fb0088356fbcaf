"""Judged documents as rows under lm-eval's names: what `samples_<task>.jsonl` holds, a line per document and filter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from assay.store.journal import Journal
from assay.store.rows import response_value, verdict_value

__all__ = ["read_samples"]

_DOCUMENTS = "SELECT document, fields, target FROM documents WHERE task = ? ORDER BY document"
_REQUESTS = """
SELECT r.document, r.number, r.repeat, r.kind, p.content, r.argument, s.text, s.logprob, s.greedy
FROM requests r JOIN prompts p ON p.digest = r.prompt LEFT JOIN responses s ON s.fingerprint = r.fingerprint
WHERE r.task = ? ORDER BY r.document, r.number, r.repeat
"""
_ANSWERS = "SELECT document, pipeline, content FROM answers WHERE task = ? ORDER BY document"
_VERDICTS = "SELECT document, pipeline, metric, kind, value FROM verdicts WHERE task = ? ORDER BY document"


def read_samples(journal: Journal, task: str) -> Iterator[dict[str, Any]]:
    """Rows in document order, filters in pipeline order. Streams: nothing is held but one document."""
    facts = journal.facts()
    settings = {key.partition(":")[2]: value for key, value in facts.items() if key.startswith("settings:")}
    about = facts.get("tasks", {}).get(task, {})
    order = {name: at for at, name in enumerate(about.get("pipelines", []))}
    metrics = {name: at for at, name in enumerate(about.get("metrics", []))}
    requests = _ByDocument(journal, _REQUESTS, task)
    answers = _ByDocument(journal, _ANSWERS, task)
    verdicts = _ByDocument(journal, _VERDICTS, task)
    for document, fields, target in journal.query(_DOCUMENTS, (task,)):
        asked = requests.of(document)
        judged = sorted(verdicts.of(document), key=lambda row: metrics.get(row[2], len(metrics)))
        for _, pipeline, content in sorted(
            answers.of(document), key=lambda row: order.get(row[1], len(order))
        ):
            scores = {
                metric: verdict_value(value)
                for _, name, metric, kind, value in judged
                if name == pipeline and kind != "unscored"
            }
            yield {
                "doc_id": document,
                "doc": json.loads(fields),
                "target": json.loads(target)["target"],
                **_asked(asked, settings),
                "filtered_resps": json.loads(content)["values"],
                "filter": pipeline,
                "metrics": list(scores),
                **scores,
            }


class _ByDocument:
    """The rows of a query that is sorted by document, taken document by document."""

    def __init__(self, journal: Journal, statement: str, task: str) -> None:
        self._groups = groupby(journal.query(statement, (task,)), key=lambda row: row[0])
        self._next: tuple[int, list[tuple[Any, ...]]] | None = None

    def of(self, document: int) -> list[tuple[Any, ...]]:
        while self._next is None or self._next[0] < document:
            key, rows = next(self._groups, (None, None))
            if key is None or rows is None:
                return []
            self._next = (key, list(rows))
        return self._next[1] if self._next[0] == document else []


def _asked(rows: list[tuple[Any, ...]], settings: dict[str, Any]) -> dict[str, Any]:
    arguments: list[list[Any]] = []
    responses: list[list[Any]] = []
    last = None
    for _, number, _, kind, prompt, argument, text, logprob, greedy in rows:
        if (
            number != last
        ):  # the number of a choice, or of a round; one repeat's dialogue may be longer than another's
            last = number
            match kind:
                case "generate":
                    arguments.append([prompt, settings.get(argument, {})])
                case "likelihood":
                    arguments.append([prompt, argument])
                case _:
                    arguments.append([prompt])
            responses.append([])
        responses[-1].append(_response(kind, text, logprob, greedy))
    return {"arguments": arguments, "resps": responses}


def _response(kind: str, text: Any, logprob: Any, greedy: Any) -> Any:
    """A response as lm-eval shows it; None where nobody answered."""
    if text is None and greedy is None:
        return None
    value = response_value(text, logprob, greedy)
    if isinstance(value, str):
        return value
    return value.total if kind == "rolling" else [value.total, value.greedy]
