"""The configuration of a task as YAML after includes, groups and flags, with the source of each key."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from assay.core.records.specs import TaskSpec
from assay.tasks.files.helper_functions import HelperFunction

__all__ = ["ResolvedKey", "format_resolved_yaml", "resolve_config", "to_json_value"]

ResolvedKey = tuple[str, Any, str]
"""(key, value, source): the source is `file:line` or a flag."""


class _Dumper(yaml.SafeDumper):
    """Writes helper functions as `!function`, texts with line breaks as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = "\n" in text.rstrip("\n") and not any(line != line.rstrip() for line in text.split("\n"))
    style = "|" if is_block else '"' if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_function(dumper: yaml.SafeDumper, function: HelperFunction) -> yaml.ScalarNode:
    return dumper.represent_scalar("!function", function.reference)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(HelperFunction, _represent_function)
_Dumper.add_multi_representer(
    object, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", repr(value))
)


def resolve_config(spec: TaskSpec, flags: Mapping[str, Any]) -> list[ResolvedKey]:
    """Return each key with its value and its source. `flags` are values that command-line flags replace, by key.

    A mapping in `flags` is merged into the mapping of the task, as a run does with `--gen_kwargs`.
    """
    resolved = []
    for key, value in spec.config.items():
        source = _shorten(spec.places.get(key, spec.path))
        if key in flags:
            flag = _get_flag(key)
            if isinstance(value, Mapping) and isinstance(flags[key], Mapping):
                value, source = {**value, **flags[key]}, f"{source}, changed by {flag}"
            else:
                value, source = flags[key], flag
        resolved.append((key, value, source))
    known = {key for key, _, _ in resolved}
    resolved += [(key, value, _get_flag(key)) for key, value in flags.items() if key not in known]
    return resolved


def _get_flag(key: str) -> str:
    return {"generation_kwargs": "--gen_kwargs"}.get(key, f"--{key}")


def format_resolved_yaml(keys: list[ResolvedKey]) -> str:
    """Return YAML in which a comment names the source of each key, after a list of the files."""
    files = list(dict.fromkeys(source.partition(":")[0] for _, _, source in keys if ":" in source))
    names = [Path(file).name for file in files]
    short = {file: name if names.count(name) == 1 else file for file, name in zip(files, names, strict=True)}
    lines = [f"# {name}: {file}" for file, name in short.items() if name != file]
    for key, value, source in keys:
        file, colon, line = source.partition(":")
        source = f"{short[file]}:{line}" if colon else source
        text = yaml.dump(
            {key: _to_plain(value)}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
        ).rstrip("\n")
        first, *rest = text.split("\n")
        if rest:
            lines += [f"# {source}", first, *rest]
        else:
            lines.append(f"{first}  # {source}")
    return "\n".join(lines)


def to_json_value(value: Any) -> Any:
    """Return a value of a configuration as JSON has it; functions as `!function utils.name`."""
    plain = _to_plain(value)
    if isinstance(plain, dict):
        return {key: to_json_value(item) for key, item in plain.items()}
    if isinstance(plain, list):
        return [to_json_value(item) for item in plain]
    return f"!function {plain.reference}" if isinstance(plain, HelperFunction) else plain


def _to_plain(value: Any) -> Any:
    """Return mappings and tuples as dictionaries and lists, which YAML has."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value


def _shorten(place: str) -> str:
    """Return a place relative to the working directory if it is inside of it."""
    path, colon, line = place.rpartition(":")
    if not colon:
        path, line = place, ""
    with suppress(ValueError):
        path = str(Path(path).resolve().relative_to(Path.cwd()))
    return f"{path}{colon}{line}"
