"""Replay recorded verdicts on function calls: judge every recorded answer again and compare.

A record has a `model`, `category`, `id`, `style` (`fc`: native calls, `prompt`: text), the answer as `result`, and the verdict
`valid` with its `error_type`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.scoring.tool_calls.bfcl import decode_native_calls, decode_text_calls, match_bfcl
from assay.scoring.tool_calls.python_calls import CallSyntaxError
from tools.oracle.corpus import CorpusError, read_lines, read_records

__all__ = ["REPOSITORY", "BfclCounts", "find_data", "read_verdicts", "replay_bfcl"]

REPOSITORY = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"


@dataclass(slots=True)
class BfclCounts:
    """How many verdicts are identical, by category, and the records that differ."""

    identical: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    total: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    different: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the counts for a JSON file."""
        categories = {
            name: {"identical": self.identical[name], "of": self.total[name]} for name in sorted(self.total)
        }
        totals = {"identical": sum(self.identical.values()), "of": sum(self.total.values())}
        return {"verdicts": totals, "categories": categories, "different": self.different}


def find_data(corpus: Path, data_root: Path | None) -> Path:
    """Return the folder with the questions and possible answers: below `data_root`, or in `hub` next to the corpora."""
    roots = [data_root] if data_root is not None else [folder / "hub" for folder in corpus.resolve().parents]
    for root in roots:
        if (root / REPOSITORY).is_dir():
            return root / REPOSITORY
    raise CorpusError(
        f"the data of BFCL are not found\nhint: name the folder that contains {REPOSITORY} with --data_root"
    )


def read_verdicts(corpus: Path) -> Iterator[dict[str, Any]]:
    """Read the records of a corpus folder, or of one file."""
    return read_lines(corpus) if corpus.is_file() else read_records(corpus, "verdicts*.jsonl*")


def replay_bfcl(records: Iterable[Mapping[str, Any]], data: Path) -> BfclCounts:
    """Judge every record again."""
    counts = BfclCounts()
    documents: dict[str, dict[str, Any]] = {}
    for record in records:
        category = record["category"]
        if category not in documents:
            documents[category] = _read_documents(data, category)
        reason = _judge(record, documents[category])
        counts.total[category] += 1
        if (not reason) == record["valid"]:
            counts.identical[category] += 1
        else:
            shown = {
                key: record.get(key) for key in ("model", "id", "style", "result", "valid", "error_type")
            }
            counts.different.append({**shown, "reason": reason})
    return counts


def _judge(record: Mapping[str, Any], documents: Mapping[str, Any]) -> str:
    """Return why the answer is not valid, or an empty text."""
    category, native = record["category"], record["style"] == "fc"
    try:
        calls = (
            decode_native_calls(record["result"]) if native else decode_text_calls(record["result"], category)
        )
    except CallSyntaxError as error:
        return "" if "irrelevance" in category else str(error)
    document = documents[record["id"]]
    mismatch = match_bfcl(calls, category, document["function"], document["possible_answers"], native=native)
    return "" if mismatch is None else f"{mismatch.kind}: {mismatch.message}"


def _read_documents(data: Path, category: str) -> dict[str, Any]:
    name = f"BFCL_v4_{category}.json"
    answers_file = data / "possible_answer" / name
    answers = _read_by_id(answers_file) if answers_file.is_file() else {}
    return {
        key: {**document, "possible_answers": answers.get(key, {}).get("ground_truth", [])}
        for key, document in _read_by_id(data / name).items()
    }


def _read_by_id(path: Path) -> dict[str, Any]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise CorpusError(f"cannot read the data of BFCL: {error}") from None
    return {record["id"]: record for record in map(json.loads, lines)}
