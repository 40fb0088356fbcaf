"""Find the documents of tasks with `should_decontaminate` in the user's corpus.

Contaminated documents are evaluated like all others; each metric is also reported over the remaining documents, as
`<metric>_decontaminate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from assay.core.errors import InvalidOption
from assay.engine.planning.records import Plan
from assay.scoring.decontamination import find_overlaps
from assay.tasks.prompts.field_compilers import copy_fields

__all__ = ["SUFFIX", "find_contaminated_documents", "read_corpus"]

SUFFIX = "_decontaminate"
_WHERE = "--decontamination_ngrams_path"


def find_contaminated_documents(plan: Plan, corpus: Path) -> dict[str, dict[int, str]]:
    """Return task -> contaminated document -> the words it shares with the corpus."""
    found = {}
    for name, planned in plan.tasks.items():
        if planned.spec.should_decontaminate:
            task = planned.task
            queries = {
                document.index: task.overlap_query(copy_fields(document.fields))
                for document in task.documents()
            }
            found[name] = find_overlaps(queries, read_corpus(corpus))
    return found


def read_corpus(path: Path) -> Iterator[str]:
    """Read the texts of a corpus: a file or a folder; `.jsonl` by its `text` field, other files by line.

    Raises:
        InvalidOption: There is no corpus.
    """
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    if not files or not path.exists():
        raise InvalidOption(
            f"no corpus at `{path}`", where=_WHERE, hint="pass a text or jsonl file, or a folder of them"
        )
    for file in files:
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines, start=1):
                    yield _parse_line(line, f"{file}:{number}") if file.suffix == ".jsonl" else line
        except OSError as error:
            raise InvalidOption(f"cannot read the corpus: {error.strerror}", where=str(file)) from None


def _parse_line(line: str, where: str) -> str:
    if not line.strip():
        return ""
    try:
        row = json.loads(line)
        return str(row["text"])
    except (ValueError, KeyError, TypeError):
        raise InvalidOption(
            "each line of a jsonl corpus must be an object with `text`", where=where
        ) from None
