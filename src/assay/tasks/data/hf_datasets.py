"""Load datasets with the `datasets` library: the hub, parquet, arrow, local copies of the hub, saved datasets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError, MissingPackage
from assay.core.fingerprints import digest_json
from assay.core.records.specs import TaskSpec
from assay.tasks.data.archives import HARNESS_KEYS, find_media_folder, prepare_media
from assay.tasks.data.dataset_folders import find_under_root
from assay.tasks.data.rows import Split
from assay.tasks.files.helper_functions import HelperFunction

__all__ = ["load_hf_dataset"]

_unreachable: list[str] = []
"""The first dataset for which the hub was unreachable. Later loads do not retry, because retries take half a minute."""


def load_hf_dataset(spec: TaskSpec, *, data_root: str | None, trust_remote_code: bool) -> Mapping[str, Split]:
    """Load every split of a dataset with the `datasets` library.

    Raises:
        DatasetError: The dataset does not exist or is not readable.
        MissingPackage: The library is not installed.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "datasets",
            f"the dataset `{spec.dataset_path}`",
            extra="datasets",
            where=spec.place("dataset_path"),
        ) from None
    datasets.disable_progress_bars()  # Assay shows its own progress
    path = str(spec.dataset_path)
    local = find_under_root(path, data_root)
    with _quiet_hub():
        prepare_media(spec, local)
        try:
            loaded = _load_dataset(datasets, spec, str(local or path), trust_remote_code)
        except StopIteration:
            raise DatasetError(
                "no file matches `data_files`, or the files are empty",
                where=spec.place("dataset_kwargs"),
                hint=f"paths are relative to {Path(spec.path).parent}",
            ) from None
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            raise _load_error(spec, error) from None
    return _keep_downloaded_videos(spec, loaded) if spec.dataset_kwargs.get("From_YouTube") else loaded


def _load_dataset(datasets: Any, spec: TaskSpec, path: str, trust_remote_code: bool) -> Any:
    if spec.dataset_kwargs.get("load_from_disk") or _is_saved_dataset(Path(path)):
        loaded = datasets.load_from_disk(path)
        return loaded if isinstance(loaded, Mapping) else {str(spec.evaluated_split): loaded}
    arguments = {
        key: value.value() if isinstance(value, HelperFunction) else value
        for key, value in spec.dataset_kwargs.items()
        if key not in HARNESS_KEYS
    }
    if path in ("parquet", "arrow", "json", "csv") and "data_files" in arguments:
        arguments["data_files"] = _find_beside_task(arguments["data_files"], Path(spec.path).parent)
    if "cache_dir" in spec.dataset_kwargs and not spec.dataset_kwargs.get("video"):
        arguments["cache_dir"] = spec.dataset_kwargs["cache_dir"]
    elif Path(path).is_dir():
        arguments["cache_dir"] = _cache_folder(Path(path), Path(datasets.config.HF_DATASETS_CACHE))
    arguments.pop("trust_remote_code", None)
    if trust_remote_code and int(datasets.__version__.partition(".")[0]) < 4:
        arguments["trust_remote_code"] = True
    return datasets.load_dataset(path, spec.dataset_name, **arguments)


def _find_beside_task(names: Any, folder: Path) -> Any:
    """Return the paths of data files; those beside the task file are found from any working directory."""
    if isinstance(names, Mapping):
        return {split: _find_beside_task(some, folder) for split, some in names.items()}
    if isinstance(names, list):
        return [_find_beside_task(name, folder) for name in names]
    if isinstance(names, str) and "://" not in names and (folder / names).is_file():
        return str((folder / names).resolve())
    return names


def _cache_folder(folder: Path, root: Path) -> str:
    """Return a cache folder for a local dataset whose name depends on the files in it.

    The library's own cache name depends only on the dataset card, so that changed rows would not be read again.
    """
    files = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    stamps = [
        (path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns) for path, status in files
    ]
    return str(root / "assay" / digest_json([str(folder.resolve()), stamps])[:16])


def _is_saved_dataset(path: Path) -> bool:
    """Return whether `save_to_disk` wrote this folder."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _load_error(spec: TaskSpec, error: Exception) -> DatasetError:
    if isinstance(error, ConnectionError) and not _unreachable:
        _unreachable.append(str(spec.dataset_path))
    first_line = str(error).partition("\n")[0]
    name = str(spec.dataset_path)
    moved = f"; if it moved, name its new id or folder: --mirror {name}=OTHER" if "/" in name else ""
    return DatasetError(
        f"cannot load the dataset `{spec.dataset_path}`: {first_line}",
        where=spec.place("dataset_path"),
        hint="to work offline, copy it to --data_root (or ASSAY_DATA) in the layout of the hub" + moved,
    )


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Silence retry messages. Work offline, from the cache, once the hub was unreachable."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        if _unreachable:
            with _offline():
                yield
        else:
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _offline() -> Iterator[None]:
    import datasets.config
    import huggingface_hub.constants

    places = (datasets.config, huggingface_hub.constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


def _keep_downloaded_videos(spec: TaskSpec, loaded: Any) -> Mapping[str, Split]:
    """Keep the documents whose videos exist locally. Assay downloads nothing from video sites.

    Raises:
        DatasetError: No video exists.
    """
    folder = find_media_folder(spec.name)
    here = {path.stem for path in folder.glob("*.mp4")}
    split = str(spec.evaluated_split)
    kept = loaded[split].filter(lambda row: row["videoID"] in here)
    if not len(kept):
        raise DatasetError(
            f"no video of `{spec.name}` exists locally",
            where=spec.place("dataset_kwargs"),
            hint=f"download them to {folder} as <videoID>.mp4",
        )
    return {split: kept}
