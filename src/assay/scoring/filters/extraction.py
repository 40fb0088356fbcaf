"""Filters that find the answer inside a longer text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS

__all__ = ["Regex", "RegexPos"]

_TAGGED = re.compile(r"\('([^']*)', '([^']*)'\)")


@FILTERS.register("regex")
class Regex:
    """Keep one match of a pattern; `fallback` where there is none.

    `group_select` chooses among all matches (-1: the last). Of several groups the first that is not empty counts.

    >>> Regex(r"(\\d+)", group_select=-1).apply([["1, 2 or 3", "none"]], [{}])
    [['3', '[invalid]']]
    """

    per_document: ClassVar[bool] = True

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: str = "[invalid]",
    ) -> None:
        self.regex_pattern = regex_pattern
        self.regex = re.compile(regex_pattern)
        self.group_select = group_select
        self.fallback = fallback

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        return [[self._found(value) for value in values] for values in responses]

    def _found(self, value: Any) -> str:
        matches = self.regex.findall(value) if isinstance(value, str) else self.regex.findall("")
        if not matches:
            return self.fallback
        match = matches[self.group_select]
        if isinstance(match, tuple):
            match = next((group for group in match if group), self.fallback)
        return str(match.strip())


@FILTERS.register("regex_pos")
class RegexPos:
    """Keep the tags of a text like `[('dog', 'NOUN'), ('runs', 'VERB')]`.

    The three settings are those of `regex`; only `fallback` has an effect.

    >>> RegexPos().apply([["[('dog', 'NOUN'), ('runs', 'VERB')]", "?"]], [{}])
    [[['NOUN', 'VERB'], ['invalid']]]
    """

    per_document: ClassVar[bool] = True

    def __init__(
        self, regex_pattern: str = r"\['(.*?)'\]", group_select: int = 0, fallback: Any = None
    ) -> None:
        self.regex_pattern = regex_pattern
        self.regex = re.compile(regex_pattern)
        self.group_select = group_select
        self.fallback = ["invalid"] if fallback is None else fallback

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[Any]]:
        return [[self._tags(value) for value in values] for values in responses]

    def _tags(self, value: Any) -> Any:
        pairs = _TAGGED.findall(value) if isinstance(value, str) else value
        return [tag for _, tag in pairs] or self.fallback
