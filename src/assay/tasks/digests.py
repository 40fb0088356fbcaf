"""Digests of a task file with its helper files, and of its data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.core.fingerprints import canonical_json, digest_json, digest_text
from assay.core.records.codec import to_plain
from assay.core.records.specs import TaskSpec
from assay.tasks.task import Task

__all__ = ["digest_content", "digest_data", "digest_spec"]


def digest_spec(spec: TaskSpec) -> str:
    """Return the digest of the merged YAML and of every helper file it refers to."""
    config = {key: value for key, value in spec.config.items() if key not in ("tag", "group", "task_alias")}
    if isinstance(spec.tools, str) and (file := Path(spec.path).parent / spec.tools).is_file():
        config["tools"] = [spec.tools, hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()]
    return digest_json(config)


def digest_data(task: Task) -> str:
    """Return the digest of the evaluated rows and of the few-shot pool, if the task uses it."""
    rows = [_digest_rows(task.rows)]
    if task.num_fewshot:
        rows.append(_digest_rows(task.fewshot_pool))
    return digest_text(*rows)


def _digest_rows(rows: Any) -> str:
    known = getattr(rows, "_fingerprint", None)  # the `datasets` library hashes its tables itself
    if isinstance(known, str):
        return known
    hasher = hashlib.blake2b(digest_size=16)
    for row in rows:
        hasher.update(digest_text(canonical_json(row if isinstance(row, dict) else to_plain(row))).encode())
    return hasher.hexdigest()


def digest_content(rows: Any) -> str:
    """Return the digest of the values of rows, whatever the name, the place and the file format of the dataset.

    The `datasets` library derives its own fingerprint from the place of a dataset, so that a copy has another one. Media are
    hashed as they are stored, without decoding them.
    """
    hasher = hashlib.blake2b(digest_size=16)
    for row in _iterate_stored(rows):
        hasher.update(digest_text(canonical_json(_replace_media(row))).encode())
    return hasher.hexdigest()


_BATCH_ROWS = 64


def _iterate_stored(rows: Any) -> Iterator[Any]:
    """Iterate over rows as they are stored: a table of the `datasets` library without decoding."""
    if hasattr(rows, "with_format") and hasattr(rows, "data"):
        table = rows.with_format("arrow")
        for start in range(0, len(rows), _BATCH_ROWS):
            yield from table[start : min(len(rows), start + _BATCH_ROWS)].to_pylist()
    else:
        yield from rows


def _replace_media(value: Any) -> Any:
    """Replace stored media by their bytes: the path differs between machines."""
    if isinstance(value, Mapping):
        if value.keys() == {"bytes", "path"}:
            path = value["path"]
            if value["bytes"] is None and isinstance(path, str) and Path(path).is_file():
                return {"bytes": Path(path).read_bytes()}
            return {"bytes": value["bytes"]} if value["bytes"] is not None else {"path": path}
        return {key: _replace_media(item) for key, item in value.items()}
    return [_replace_media(item) for item in value] if isinstance(value, (list, tuple)) else value
