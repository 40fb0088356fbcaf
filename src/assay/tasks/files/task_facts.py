"""What a task file says about its task without loading data: output type, modality, and the size of local and cached data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import AssayError
from assay.tasks.data.dataset_sizes import count_documents
from assay.tasks.files.yaml_reader import read_task_file

__all__ = ["TaskFacts", "describe_task"]

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
        documents=count_documents(config, Path(path).parent),
        modality=", ".join(modalities) or ("text" if kind else ""),
    )
