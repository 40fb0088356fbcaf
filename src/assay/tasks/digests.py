"""Digests of a task file with its helper files, and of its data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from assay.core.fingerprints import canonical_json, digest_json, digest_text
from assay.core.records.codec import to_plain
from assay.core.records.specs import TaskSpec
from assay.tasks.task import Task

__all__ = ["digest_data", "digest_spec"]


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
