"""The folders that a task may read without `--allow_data_outside`.

The prompts of a shared task file go to a provider, so neither the file nor its data may choose any file of the user. Task code is not
restricted: it can read every file by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec

__all__ = ["AllowedFolders"]


@dataclass(frozen=True, slots=True)
class AllowedFolders:
    """The folder of the task, `--data_root` and the working directory."""

    folder: Path
    """The folder of the task."""

    roots: tuple[Path, ...]

    @classmethod
    def for_task(cls, spec: TaskSpec, data_root: str | None) -> AllowedFolders:
        folder = Path(spec.path).parent
        roots = [folder, Path.cwd()]
        roots += [Path(root).expanduser() for root in (data_root, os.environ.get("ASSAY_DATA")) if root]
        return cls(folder, tuple(Path(os.path.realpath(root)) for root in roots))

    def check_data(self, name: str, *, where: str) -> None:
        """Raise an error if a data file or folder exists and is outside."""
        path = Path(name).expanduser()
        for candidate in [path] if path.is_absolute() else [self.folder / path, path]:
            if os.path.lexists(candidate) and not self._contains(candidate):
                raise _build_error("data", name, where)

    def check_media(self, value: Any, *, where: str) -> None:
        """Raise an error if a value of a column names a file that is outside. The cache of downloaded datasets is allowed."""
        if isinstance(value, Mapping):
            if not isinstance(value.get("bytes"), (bytes, bytearray)):
                for key in _MEDIA_KEYS:
                    self.check_media(value.get(key), where=where)
            return
        if not isinstance(value, (str, Path)):
            return
        name = str(value)
        scheme = name.partition(":")[0].lower() if ":" in name[:8] else ""
        if scheme in ("http", "https", "data"):
            return
        path = Path(unquote(urlsplit(name).path) if scheme == "file" else name).expanduser()
        if path.is_file() and not self._contains(path) and not _is_downloaded(path):
            raise _build_error("media", name, where)

    def _contains(self, path: Path) -> bool:
        found = Path(os.path.realpath(path))
        return any(found.is_relative_to(root) for root in self.roots)


def _is_downloaded(path: Path) -> bool:
    """Return whether a file is in the cache of Hugging Face: in one of its folders, because the cache itself holds the token."""
    home = Path(os.path.realpath(Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()))
    caches = [home, *(Path(os.path.realpath(os.environ[name])) for name in _CACHES if os.environ.get(name))]
    found = Path(os.path.realpath(path))
    return any(found.is_relative_to(cache) and found.parent != cache for cache in caches)


_MEDIA_KEYS = ("bytes", "url", "path", "image", "audio", "video")
"""Keys of a mapping that may contain the place of a medium."""

_CACHES = ("HF_DATASETS_CACHE", "HF_HUB_CACHE")


def _build_error(kind: str, name: str, where: str) -> DatasetError:
    return DatasetError(
        f"the {kind} file `{name:.200}` is outside the folder of the task, --data_root and the working directory",
        where=where,
        hint="pass --allow_data_outside if you trust the task, or copy the file",
    )
