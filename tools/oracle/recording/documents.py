"""Where a recording's documents come from: another corpus, local dataset repositories, or synthesis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["DocumentsNotFound", "find_repository", "load_local_splits"]


class DocumentsNotFound(Exception):
    """No documents for a task."""


def find_repository(data_root: str, path: str) -> Path:
    """Return the local folder of a dataset repository; raise `DocumentsNotFound` if there is none.

    A repository `OWNER/NAME` is looked up by its full name, then by the last part of its name.
    """
    root = Path(data_root)
    candidates = [root / path, *sorted(root.glob(f"*/{path.rpartition('/')[2]}"))]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise DocumentsNotFound(f"no dataset `{path}` in `{data_root}`")


def load_local_splits(data_root: str, path: str, name: str | None, max_documents: int) -> Any:
    """Load the first documents of every split of a local dataset repository."""
    import datasets
    from datasets.load import load_dataset  # the recorders replace `datasets.load_dataset`

    loaded = load_dataset(str(find_repository(data_root, path)), name)
    return datasets.DatasetDict(
        {split: rows.select(range(min(len(rows), max_documents))) for split, rows in loaded.items()}
    )
