"""Filters that transform each value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.core.errors import TaskError
from assay.scoring.filters import FILTERS

__all__ = [
    "FormatSpan",
    "Lowercase",
    "Map",
    "RemoveLeadingSpace",
    "RemoveWhitespace",
    "StripThinking",
    "Uppercase",
    "format_span",
    "strip_thinking",
    "strip_reasoning",
]


@FILTERS.register("lowercase")
class Lowercase:
    """Convert to lower case.

    >>> Lowercase().apply([["Yes"]], [{}])
    [['yes']]
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[value.lower() for value in values] for values in responses]


@FILTERS.register("uppercase")
class Uppercase:
    """Convert to upper case.

    >>> Uppercase().apply([["Yes"]], [{}])
    [['YES']]
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[value.upper() for value in values] for values in responses]


@FILTERS.register("remove_whitespace")
class RemoveWhitespace:
    """Strip white space at both ends.

    >>> RemoveWhitespace().apply([[" yes  "]], [{}])
    [['yes']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, **_: Any) -> None:
        pass

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[value.strip() for value in values] for values in responses]


@FILTERS.register("remove_leading_space")
class RemoveLeadingSpace:
    """Remove one space at the start: what lmms_eval calls `remove_whitespace`.

    >>> RemoveLeadingSpace().apply([["  yes "]], [{}])
    [[' yes ']]
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[value.removeprefix(" ") for value in values] for values in responses]


@FILTERS.register("map")
class Map:
    """Replace each value by its entry in a table, or by `default_value`.

    >>> Map({"A": 1}, default_value=0).apply([["A", "Z"]], [{}])
    [[1, 0]]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> None:
        if mapping_dict is not None and not isinstance(mapping_dict, Mapping):
            raise TaskError(f"`mapping_dict` of the filter `map` must be a mapping, got {mapping_dict!r}")
        self.mapping = mapping_dict or {}
        self.default = default_value

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[Any]]:
        return [[self.mapping.get(value, self.default) for value in values] for values in responses]


@FILTERS.register("strip_thinking")
class StripThinking:
    """Remove the reasoning of a model before its answer.

    >>> StripThinking().apply([["<think>2 + 2</think> 4"]], [{}])
    [['4']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, tag_pairs: Sequence[Sequence[str]] | None = None) -> None:
        self.tag_pairs = tag_pairs or (("<think>", "</think>"), ("<thinking>", "</thinking>"))

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[Any]]:
        return [
            [strip_thinking(value, self.tag_pairs) if isinstance(value, str) else value for value in values]
            for values in responses
        ]


def strip_thinking(text: str, tag_pairs: Sequence[Sequence[str]]) -> str:
    """Remove reasoning blocks and outer white space.

    A closing tag without an opening tag also ends a block, because some chat templates put the opening tag in the prompt.

    >>> strip_thinking("so it is 4</think> 4", [("<think>", "</think>")])
    '4'
    """
    for opening, closing in tag_pairs:
        while (start := text.find(opening)) >= 0 and (end := text.find(closing, start)) >= 0:
            text = text[:start] + text[end + len(closing) :]
        if closing in text and opening not in text:
            text = text.rpartition(closing)[2]
    return text.strip()


def strip_reasoning(value: Any, tags: Sequence[Sequence[str]]) -> Any:
    """Remove the reasoning between tags from an answer or a list of answers.

    >>> strip_reasoning(["<think>hm</think> 4", None], [("<think>", "</think>")])
    ['4', None]
    """
    if isinstance(value, str):
        return strip_thinking(value, tags)
    if isinstance(value, list):
        return [strip_thinking(one, tags) if isinstance(one, str) else one for one in value]
    return value


_LABELS = {
    "person": "PER",
    "people": "PER",
    "persons": "PER",
    "per": "PER",
    "location": "LOC",
    "counties": "LOC",
    "places": "LOC",
    "country": "LOC",
    "continent": "LOC",
    "loc": "LOC",
    "organization": "ORG",
    "company": "ORG",
    "org": "ORG",
    "time": "DATE",
    "date": "DATE",
}
_LABEL = re.compile(rf"\b({'|'.join(_LABELS)})\s*:")
_ENTITY = re.compile(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)")


@FILTERS.register("format_span")
class FormatSpan:
    """Convert named entities to the format of the references of the NER tasks.

    >>> FormatSpan().apply([["Person: Ada, Bob $$ place: none"]], [{}])
    [['per: ada $ per: bob']]
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[str]]:
        return [[format_span(value) for value in values] for values in responses]


def format_span(text: str) -> str:
    """Return `label: entity` for each entity, joined by ` $ `, without entities named "none".

    >>> format_span("LOC: Kenya, Uganda")
    'loc: kenya $ loc: uganda'
    """
    text = _LABEL.sub(lambda found: f"{_LABELS[found[1]]}:", text.lower())
    text = text.replace("$$", "$").rstrip("$").replace("\n", "$").strip()
    entities = (
        (label, entity.strip()) for label, several in _ENTITY.findall(text) for entity in several.split(",")
    )
    return " $ ".join(f"{label.lower()}: {entity}" for label, entity in entities if entity.lower() != "none")
