"""Load the manifest and the options of a stored run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import CorruptStore, DatasetError, InvalidOption
from assay.core.options.run_spec import RunSpec, list_options
from assay.core.secrets import REDACTED, contains_redacted
from assay.engine.planning.manifests.manifest import FILE_NAME, FORMAT
from assay.store.runs.run import Run

__all__ = [
    "RecordedOptions",
    "drop_redacted",
    "get_manifest",
    "load_options",
    "read_manifest",
]

_LISTS = ("judge", "user", "sink")
"""Options whose values are `NAME,key=value`."""


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest in a file, or of the run in a folder.

    Raises:
        DatasetError: There is no manifest.
    """
    if path.is_dir():
        return get_manifest(Run(path))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"cannot read the manifest: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise DatasetError(f"the manifest is not JSON: {error}", where=str(path)) from None
    if not isinstance(content, dict) or not isinstance(content.get("options"), dict):
        raise DatasetError(
            "the file is not a run manifest", where=str(path), hint=f"run folders contain {FILE_NAME}"
        )
    return _check_format(content, str(path))


def get_manifest(run: Run) -> dict[str, Any]:
    """Return the manifest of a run: from its journal, or from the file beside it.

    Raises:
        DatasetError: The run has no manifest.
    """
    file = run.folder / FILE_NAME
    try:
        kept = run.facts.get("manifest")
    except CorruptStore:
        kept = None
        if not file.is_file():
            raise
    if isinstance(kept, dict):
        return _check_format(kept, str(run.folder))
    if file.is_file():
        return read_manifest(file)
    if "imported" in run.facts:
        raise DatasetError(
            "the run was imported, so it cannot be repeated",
            where=str(run.folder),
            hint="evaluate its tasks with `assay run`, then use `assay compare`",
        )
    raise DatasetError(
        "the run has no manifest",
        where=str(run.folder),
        hint="it was written by an older version of Assay; repeat its command",
    )


def _check_format(content: dict[str, Any], where: str) -> dict[str, Any]:
    if content.get("format", 0) > FORMAT:
        raise DatasetError(
            f"the manifest was written by a newer version of Assay (format {content['format']}, supported: {FORMAT})",
            where=where,
            hint="upgrade Assay",
        )
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOptions:
    """The options of a stored run."""

    spec: RunSpec
    manifest: Mapping[str, Any]
    given: tuple[str, ...]
    """Overrides that differ from the stored options."""

    missing: tuple[str, ...]
    """Redacted options that were not given again."""


def load_options(manifest: Mapping[str, Any], overrides: Mapping[str, Any]) -> RecordedOptions:
    """Load the options of a manifest with overrides; model arguments are merged key by key."""
    known = {name for name, _, _ in list_options()}
    unknown = sorted(set(manifest["options"]) - known)
    if unknown:
        raise InvalidOption(f"unknown options in the manifest: {', '.join(unknown)}")
    options = _resolve_paths(manifest)
    hidden = [
        (name, key)
        for name, value in options.items()
        if isinstance(value, Mapping)
        for key, item in value.items()
        if contains_redacted(item)
    ]
    for name, key in hidden:
        options[name] = {other: item for other, item in options[name].items() if other != key}
    masked = [(name, word) for name in _LISTS for word in options.get(name, ()) if contains_redacted(word)]
    for name in _LISTS:
        options[name] = [drop_redacted(word) for word in options.get(name, ())]
    before = RunSpec.of(options)
    for name, value in overrides.items():
        old = options.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping) and name not in ("samples", "subset")
        options[name] = {**old, **value} if both else value  # type: ignore[dict-item]
    selections = ("samples", "limit", "budget", "subset")
    for one in selections:
        for other in selections if overrides.get(one) is not None else ():
            if other != one and other not in overrides:
                options[other] = None  # they exclude each other; the override wins
    missing = tuple(f"{name}.{key}" for name, key in hidden if key not in options[name])
    missing += tuple(f"{name} {word}" for name, word in masked if name not in overrides)
    spec = RunSpec.of(options)
    given = tuple(name for name in overrides if getattr(spec, name) != getattr(before, name))
    return RecordedOptions(spec=spec, manifest=manifest, given=given, missing=missing)


def drop_redacted(word: str) -> str:
    """Drop the redacted pairs of `name,key=value`."""
    return ",".join(part for part in word.split(",") if not part.endswith(f"={REDACTED}"))


def _resolve_paths(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve relative paths that exist only relative to the folder where the run was started."""
    options = dict(manifest["options"])
    start = Path(str(manifest.get("folder") or "."))
    paths = [str(task.get("path") or "") for task in manifest.get("tasks", {}).values()]

    def there(word: Any) -> Any:
        if not isinstance(word, str) or not word or Path(word).is_absolute():
            return word
        elsewhere = start / word
        try:
            return str(elsewhere) if not Path(word).exists() and elsewhere.exists() else word
        except (OSError, ValueError):  # not a valid file name
            return word

    def task(word: str) -> str:
        path = there(word)
        named = "/" in word or word.endswith((".yaml", ".yml"))
        return path if named or any(one.startswith(f"{path}/") for one in paths) else word

    options["tasks"] = [task(word) for word in options.get("tasks", ())]
    options["include_path"] = [there(word) for word in options.get("include_path", ())]
    for name in ("data_root", "decontamination_ngrams_path", "prices"):
        options[name] = there(options.get(name))
    options["model_args"] = {key: there(value) for key, value in (options.get("model_args") or {}).items()}
    return options
