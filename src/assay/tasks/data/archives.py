"""Download and unpack the media archives of a dataset, once, into the folder where the task expects them.

A task with `dataset_kwargs: {video: true, cache_dir: NAME}` finds its files under `$HF_HOME/NAME`. An existing folder
counts as complete, so the archives are unpacked under another name and the folder is renamed at the end.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec

__all__ = ["HARNESS_KEYS", "find_media_folder", "prepare_media"]

HARNESS_KEYS = frozenset(
    "video cache_dir builder_script force_download force_unzip local_files_only create_link From_YouTube "
    "load_from_disk max_retries num_proc".split()
)
"""Keys of `dataset_kwargs` that are for the harness and not for `load_dataset`."""


def find_media_folder(name: str) -> Path:
    """Return the media folder of a task: an absolute path, or a path under `HF_HOME`. Expands `~` and `$NAME`."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    return home / os.path.expandvars(Path(name).expanduser())


def prepare_media(spec: TaskSpec, snapshot: Path | None) -> None:
    """Unpack the media of a task into the folder where its helper functions expect them.

    `snapshot` is the local folder of the dataset. Without it, the dataset is downloaded from the hub.

    Raises:
        DatasetError: The archives cannot be downloaded or are damaged.
    """
    settings = spec.dataset_kwargs
    if not settings.get("video") or "cache_dir" not in settings:
        return
    target = find_media_folder(str(settings["cache_dir"]))
    linked = bool(settings.get("create_link")) and target.is_symlink()
    if target.exists() and not linked and not settings.get("force_unzip"):
        return
    source = snapshot or _download_snapshot(spec, settings)
    archives = sorted(path for path in source.rglob("*") if _is_archive(path))
    try:
        if archives and not linked:
            _unpack(archives, target)
        elif not target.exists() or linked:
            _link(source, target)
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"cannot unpack the media of `{spec.dataset_path}`: {error}",
            where=spec.place("dataset_kwargs"),
            hint=f"the media folder is {target}; the partial copy was removed",
        ) from error


def _download_snapshot(spec: TaskSpec, settings: Mapping[str, Any]) -> Path:
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                repo_id=str(spec.dataset_path),
                repo_type="dataset",
                revision=settings.get("revision", "main"),
                force_download=bool(settings.get("force_download")),
                local_files_only=bool(settings.get("local_files_only")),
            )
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise DatasetError(
            f"cannot download the media of `{spec.dataset_path}`: {str(error).partition(chr(10))[0]}",
            where=spec.place("dataset_path"),
            hint="to work offline, copy the dataset to --data_root (or ASSAY_DATA) in the layout of the hub",
        ) from None


def _is_archive(path: Path) -> bool:
    return path.suffix == ".zip" or ".tar" in path.name


def _unpack(archives: Iterable[Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.unpacking-{os.getpid()}")
    try:
        for zipped in (path for path in archives if path.suffix == ".zip"):
            with zipfile.ZipFile(zipped) as archive:
                archive.extractall(fresh)
        for parts in _group_tar_parts(archives).values():
            with _JoinedFiles(parts) as stream, tarfile.open(fileobj=stream, mode="r|*") as tar:
                tar.extractall(fresh, filter="data")
        if target.exists():
            shutil.copytree(fresh, target, dirs_exist_ok=True)
        else:
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _group_tar_parts(archives: Iterable[Path]) -> dict[str, list[Path]]:
    """Group the numbered parts of split tar files, in order: `videos_00.tar`, `videos.tar.part1`."""
    groups: dict[str, list[Path]] = {}
    for path in archives:
        if path.suffix != ".zip":
            stem = re.sub(r"_\d+$", "", str(path).partition(".tar")[0])
            groups.setdefault(stem, []).append(path)
    return groups


class _JoinedFiles:
    """Reads several files as one."""

    def __init__(self, parts: list[Path]) -> None:
        self._pending = list(parts)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            if self._file is None:
                if not self._pending:
                    break
                self._file = self._pending.pop(0).open("rb")
            piece = self._file.read(size - len(content))
            if not piece:
                self._file.close()
                self._file = None
            content += piece
        return content


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    target.symlink_to(source.resolve(), target_is_directory=True)
