"""Where a recording's documents come from: another corpus, local dataset repositories, written files, or synthesis."""

from __future__ import annotations

import json
import sys
import wave
from array import array
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["DocumentsNotFound", "WrittenDocuments", "find_repository", "load_local_splits"]


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


class WrittenDocuments:
    """Hand-written documents: JSON files of a folder, with their media in `media/`."""

    def __init__(self, folder: Path) -> None:
        self.media = folder / "media"
        self._entries: list[dict[str, Any]] = []
        for path in sorted(folder.glob("*.json")):
            content = json.loads(path.read_text("utf-8"))
            self._entries += content if isinstance(content, list) else [content]

    def find(self, task: str) -> Mapping[str, Any]:
        """Return the first entry for a task; raise `DocumentsNotFound` if there is none."""
        for entry in self._entries:
            if any(fnmatchcase(task, pattern) for pattern in entry["tasks"]):
                return entry
        raise DocumentsNotFound(f"no written documents for `{task}`")

    def read_value(self, value: Any) -> Any:
        """Replace `{"$image": NAME}`, `{"$audio": NAME}` and `{"$bytes": NAME}` by the contents of these files."""
        if isinstance(value, list):
            return [self.read_value(item) for item in value]
        match value:
            case {"$image": name}:
                from PIL import Image

                with Image.open(self.media / name) as image:
                    image.load()
                    return image.copy()
            case {"$audio": name}:
                return {**_read_wave(self.media / name), "path": name}
            case {"$bytes": name}:
                return (self.media / name).read_bytes()
            case {}:
                return {key: self.read_value(item) for key, item in value.items()}
        return value


def _read_wave(path: Path) -> dict[str, Any]:
    """Return samples and sampling rate of a WAV file with 16 bits per sample and one channel."""
    with wave.open(str(path), "rb") as file:
        if (file.getsampwidth(), file.getnchannels()) != (2, 1):
            raise ValueError(f"`{path}` is not a WAV file with 16 bits and one channel")
        samples = array("h", file.readframes(file.getnframes()))
        if sys.byteorder == "big":
            samples.byteswap()
        return {"array": [sample / 32768 for sample in samples], "sampling_rate": file.getframerate()}
