"""Parse and describe `--model_args`, for adapters whose arguments are a dataclass.

Each field is made by `argument`, which stores how to parse a value and whether it can change answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool

__all__ = ["argument", "parse_argument", "parse_flag", "parse_count", "parse_mapping"]


def argument(parse: Callable[[Any], Any], default: Any = None, *, changes_answers: bool = True) -> Any:
    """Return a dataclass field for one argument.

    `changes_answers`: whether the argument can change an answer and is therefore part of the model's identity.
    """
    metadata = {"parse": parse, "changes_answers": changes_answers}
    if isinstance(default, Mapping):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def parse_argument(name: str, value: Any, parse: Callable[[Any], Any], *, model: str) -> Any:
    """Parse the value of one argument.

    Raises:
        InvalidOption: The value is not valid.
    """
    try:
        return parse(value)
    except (TypeError, ValueError, InvalidOption) as error:
        raise InvalidOption(f"argument `{name}` of `{model}`: {error}", where="--model_args") from None


def parse_flag(value: Any) -> bool:
    """Parse `true`, `false` and their usual spellings."""
    return value if isinstance(value, bool) else bool(parse_bool(str(value)))


def parse_count(value: Any) -> int:
    """Parse an integer of at least 0."""
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError(f"{value!r} is not a non-negative integer")
    return int(value)


def parse_mapping(value: Any) -> Mapping[str, Any]:
    """Parse a mapping, or a JSON object given as text."""
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise ValueError(f"{value!r} is not a mapping")
    return dict(found)
