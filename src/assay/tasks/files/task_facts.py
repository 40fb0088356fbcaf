"""What a task file says about its task without loading data: output type, modality, and the size of local data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.tasks.files.yaml_reader import read_task_file

__all__ = ["TaskFacts", "describe_task"]

_MAX_COUNTED_BYTES = 20_000_000
"""Larger data files are not counted."""

_MODALITIES = {"doc_to_image": "image", "doc_to_visual": "visual", "doc_to_audio": "audio"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Facts about a task; empty or None where they are unknown."""

    output_type: str = ""
    documents: int | None = None
    modality: str = ""


def describe_task(path: str | Path) -> TaskFacts:
    """Return the facts about the task in a file. A file that cannot be read has none."""
    try:
        config = read_task_file(Path(path)).config
    except AssayError:
        return TaskFacts()
    modalities = [word for key, word in _MODALITIES.items() if config.get(key) is not None]
    kind = config.get("output_type", "" if config.get("class") else "generate_until")
    return TaskFacts(
        output_type=str(kind),
        documents=_count_documents(config, Path(path).parent),
        modality=", ".join(modalities) or ("text" if kind else ""),
    )


def _count_documents(config: Mapping[str, Any], folder: Path) -> int | None:
    """Count the lines of a local JSON lines file of the evaluated split."""
    split = config.get("test_split") or config.get("validation_split")
    arguments = config.get("dataset_kwargs")
    files = arguments.get("data_files") if isinstance(arguments, Mapping) else None
    name = files.get(split) if isinstance(files, Mapping) else None
    if config.get("dataset_path") != "json" or config.get("process_docs") or not isinstance(name, str):
        return None
    path = folder / name
    if path.suffix != ".jsonl" or not path.is_file() or path.stat().st_size > _MAX_COUNTED_BYTES:
        return None
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
