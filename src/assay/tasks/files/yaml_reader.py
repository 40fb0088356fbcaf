"""Read task files as mappings with the line of every key, merge includes, and keep `!function` references.

`task_loader` interprets the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from assay.core.dialects import Dialect
from assay.core.errors import TaskError
from assay.tasks.files.dialects import find_harness
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.yaml_aliases import check_aliases, check_depth

__all__ = ["TaskFile", "merge_includes", "read_task_file"]

_MAX_PLACES = 2_000
"""Limit for files with many YAML aliases. No real task file reaches it."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A YAML file merged with its includes."""

    path: Path
    config: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    """`file:line` by key path: `metric_list`, `metric_list[0].metric`."""

    included: tuple[Path, ...] = ()
    """The included files, and the files that these include."""


def read_task_file(path: Path, *, _open: tuple[Path, ...] = ()) -> TaskFile:
    """Read a task file and its includes. The merge is shallow, and the file's own keys take precedence.

    Raises:
        TaskError: The file does not exist, is not a YAML mapping, or includes itself.
    """
    config, places = _parse(path)
    return merge_includes(TaskFile(path, config, places), _open=_open)


def merge_includes(file: TaskFile, *, _open: tuple[Path, ...] = ()) -> TaskFile:
    """Merge the files that a config includes: a task file, or a member that a group defines in place.

    Raises:
        TaskError: An included file does not exist or includes itself.
    """
    path, places = file.path, file.places
    config = dict(file.config)
    include = config.pop("include", None)
    if include is None:
        return file
    opened = (*_open, path.resolve())
    merged: dict[str, Any] = {}
    merged_places: dict[str, str] = {}
    included: list[Path] = []
    dialect = find_harness(path) or Dialect.LM_EVAL
    names = include if isinstance(include, list) else [include]
    for name in reversed(names) if dialect.reverses_includes else names:
        where = places.get("include", str(path))
        target = _resolve_include(path, name, where, working_folder_first=dialect.searches_working_folder)
        if target.resolve() in opened:
            raise TaskError(f"`include: {name}` is circular", where=where)
        base = read_task_file(target, _open=opened)
        included += (target, *base.included)
        for key in base.config:
            for old in [place for place in merged_places if _top_key(place) == key]:
                del merged_places[old]
        merged.update(base.config)
        merged_places.update(base.places)
    for key in config:
        for old in [place for place in merged_places if _top_key(place) == key]:
            del merged_places[old]
    merged.pop("task_list", None)
    return TaskFile(path, {**merged, **config}, {**merged_places, **places}, tuple(included))


def _top_key(place: str) -> str:
    return place.partition(".")[0].partition("[")[0]


def _resolve_include(path: Path, name: Any, where: str, *, working_folder_first: bool) -> Path:
    """Return the path of an included file: relative to the including file, or to the working folder first."""
    if not isinstance(name, str):
        raise TaskError(f"`include` must be a file name, not {name!r}", where=where)
    target = Path(name) if Path(name).is_absolute() else path.parent / name
    if working_folder_first and Path(name).is_file():
        target = Path(name)
    if not target.is_file():
        raise TaskError(
            f"included file not found: `{name}`",
            where=where,
            hint=f"expected {target}; paths are relative to the including file",
        )
    return target


def _parse(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TaskError(f"cannot read the task file: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"the task file is not UTF-8: {error.reason} at byte {error.start}", where=str(path)
        ) from None
    loader = _make_loader(path)(text)
    try:
        check_depth(text)
        node = loader.get_single_node()
        check_aliases(node)
        config = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        raise TaskError(
            f"not valid YAML: {_error_reason(error)}",
            where=f"{path}{_error_position(error)}",
            hint=_error_hint(error),
        ) from None
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise TaskError(
            f"not valid YAML: {error}", where=str(path)
        ) from None  # a scalar that does not match its tag
    finally:
        loader.dispose()
    if not isinstance(config, dict):
        raise TaskError(
            "a task file must be a mapping of keys", where=str(path), hint="start with `task: my_task`"
        )
    places: dict[str, str] = {}
    _collect_places(node, str(path), "", places, depth=5)
    return config, places


def _make_loader(path: Path) -> Any:
    class TaskLoader(_Loader):  # type: ignore[misc]
        """A safe loader that keeps `!function` as a reference to a file in this folder."""

    def construct(loader: Any, node: Any) -> HelperFunction:
        reference = loader.construct_scalar(node)
        return HelperFunction(reference, path.parent, f"{path}:{node.start_mark.line + 1}")

    TaskLoader.add_constructor("!function", construct)
    return TaskLoader


def _collect_places(
    node: Any,
    path: str,
    prefix: str,
    places: dict[str, str],
    *,
    depth: int,
    seen: frozenset[int] = frozenset(),
) -> None:
    """Collect the lines of keys and entries, a few levels deep. Repeated aliases are not followed."""
    if id(node) in seen or len(places) > _MAX_PLACES:
        return
    seen |= {id(node)}
    named: list[tuple[str, Any, Any]] = []
    if isinstance(node, yaml.MappingNode):
        named = [
            (f"{prefix}.{key.value}" if prefix else str(key.value), key, value) for key, value in node.value
        ]
    elif isinstance(node, yaml.SequenceNode):
        named = [(f"{prefix}[{index}]", value, value) for index, value in enumerate(node.value)]
    for name, marked, value in named:
        places[name] = f"{path}:{marked.start_mark.line + 1}"
        if depth:
            _collect_places(value, path, name, places, depth=depth - 1, seen=seen)


def _error_reason(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None)
    return str(problem or error).replace("\n", " ")


def _error_position(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""


def _error_hint(error: yaml.YAMLError) -> str:
    reason = _error_reason(error)
    if "could not determine a constructor" in reason:
        return "the only tag a task file may use is `!function module.name`"
    if "tab" in reason or "\\t" in reason:
        return "YAML is indented with spaces"
    if "mapping values are not allowed" in reason:
        return "quote a text that contains `: `"
    return ""
