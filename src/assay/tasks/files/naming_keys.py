"""Extract the naming keys of task files without parsing the YAML.

Listing thirteen thousand tasks must not parse thirteen thousand files, so only the top-level keys that define names are
cut out of the text. `index_cache` stores the result.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["extract_naming_keys"]

_KEYS = ("task", "group", "tag", "class", "include")
_GROUP_KEY = "aggregate_metric_list"
"""A key of groups only. That a file has it is extracted, not its value."""

_TOP_KEY = re.compile(r"^([A-Za-z_][\w-]*|\"[^\"\n]+\"|'[^'\n]+')[ \t]*:(?=[ \t\r\n]|$)", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z_][\w.+/@-]*")
_QUOTED = re.compile(r"\"([^\"\\\n]+)\"|'([^'\n]+)'")
_WORDS = re.compile(r"-[ ]+[A-Za-z_][\w.+/@-]*[ \t]*(?:\r?\n[ \t]*-[ ]+[A-Za-z_][\w.+/@-]*[ \t]*)*")
_NOT_TEXT = frozenset("true false yes no on off null none".split())


def extract_naming_keys(text: str) -> dict[str, Any] | None:
    """Return the naming keys of a task file's text without its includes, or None if only a YAML parser can find them.

    These are `task`, `group`, `tag`, `class` and `include`, if the file has them. Functions are text. An empty text for
    `aggregate_metric_list` says that the file defines a group.

    >>> extract_naming_keys("task: arc_easy\\ntag:\\n  - ai2_arc\\ndoc_to_text: '{{question}}'\\n")
    {'task': 'arc_easy', 'tag': ['ai2_arc']}
    """
    found: dict[str, Any] = {}
    starts = [(match.start(), match.end(), match[1].strip("\"'")) for match in _TOP_KEY.finditer(text)]
    if not starts or text.lstrip().startswith(("{", "%", "---")):
        return None
    for index, (start, end, key) in enumerate(starts):
        if key == _GROUP_KEY:
            found[key] = ""
        if key not in _KEYS:
            continue
        stop = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        value = text[end:stop].strip()
        simple = _parse_simple_value(value)
        if simple is not None:
            found[key] = simple
            continue
        try:
            found[key] = _parse_yaml_value(text[start:stop])[key]
        except (ValueError, TypeError, KeyError):
            return None
    return found


def _parse_simple_value(value: str) -> str | list[str] | None:
    """Parse a plain word or a list of plain words, one per line, which covers most files."""
    if _PLAIN.fullmatch(value):
        return value if value.lower() not in _NOT_TEXT else None
    quoted = _QUOTED.fullmatch(value)
    if quoted:
        return quoted[1] or quoted[2]
    if _WORDS.fullmatch(value):
        words = [line.strip()[1:].strip() for line in value.splitlines()]
        return words if _NOT_TEXT.isdisjoint(word.lower() for word in words) else None
    return None


def _parse_yaml_value(text: str) -> Any:
    """Parse a piece of YAML. Imports the parser, which most files do not need."""
    import yaml

    from assay.tasks.files.yaml_aliases import load_yaml

    if not hasattr(_parse_yaml_value, "loader"):
        parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

        class NamesLoader(parser):  # type: ignore[misc]
            """Reads `!function x.y` as the text `x.y`."""

        NamesLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
        _parse_yaml_value.loader = NamesLoader  # type: ignore[attr-defined]
    try:
        return load_yaml(text, _parse_yaml_value.loader)  # type: ignore[attr-defined]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
