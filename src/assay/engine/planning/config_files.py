"""Read YAML files of options, with the place of errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption

__all__ = ["read_yaml", "read_yaml_with_places"]

_STANDARD_INPUT = "-"


def read_yaml(path: Path, kind: str) -> Any:
    """Read a YAML file; `-` is standard input. `kind` names the file in errors.

    Raises:
        InvalidOption: The file cannot be read or is not YAML.
    """
    return read_yaml_with_places(path, kind)[0]


def read_yaml_with_places(path: Path, kind: str) -> tuple[Any, dict[str, str]]:
    """Read a YAML file and return also the place (`file:line`) of each top-level key.

    Raises:
        InvalidOption: The file cannot be read, is not YAML, or has a key twice.
    """
    import yaml

    from assay.tasks.files.yaml_aliases import load_yaml

    try:
        text = sys.stdin.read() if str(path) == _STANDARD_INPUT else path.read_text(encoding="utf-8")
        loaded = load_yaml(text, yaml.SafeLoader)  # its error positions are more precise
        node = yaml.compose(text, yaml.SafeLoader)
        name = "standard input" if str(path) == _STANDARD_INPUT else str(path)
        _reject_duplicate_keys(node, kind, name)
        keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        return loaded, {str(key.value): f"{name}:{key.start_mark.line + 1}" for key in keys}
    except OSError as error:
        raise InvalidOption(f"cannot read the {kind}: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"the {kind} is not UTF-8: {error.reason} at byte {error.start}", where=str(path)
        ) from None
    except yaml.YAMLError as error:
        mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InvalidOption(f"the {kind} is not valid YAML: {reason}", where=where) from None


def _reject_duplicate_keys(node: Any, kind: str, name: str) -> None:
    """Raise an error if a mapping has a key twice: YAML would use the last value."""
    visited: set[int] = set()
    pending = [node]
    while pending:
        node = pending.pop()
        if id(node) in visited or not isinstance(getattr(node, "value", None), list):
            continue
        visited.add(id(node))  # an alias is the node of its anchor
        lines: dict[tuple[str, str], int] = {}
        for item in node.value:
            if not isinstance(item, tuple):
                pending.append(item)
                continue
            key, value = item
            pending.append(value)
            if key.id != "scalar":
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                raise InvalidOption(
                    f"the {kind} has the key `{key.value}` twice",
                    where=f"{name}:{line}",
                    hint=f"the first one is in line {lines[key.tag, key.value]}; remove one of them",
                )
            lines[key.tag, key.value] = line
