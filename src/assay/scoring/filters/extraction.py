"""Filters that extract the answer from a longer text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS

__all__ = ["NotFound", "Regex", "RegexPos"]

_TAGGED = re.compile(r"\('([^']*)', '([^']*)'\)")


class NotFound(str):
    """The fallback text of an answer that was not found.

    It equals its text, so scores do not change, but the document counts can distinguish no answer from a wrong one.
    """

    __slots__ = ()


@FILTERS.register("regex")
class Regex:
    """Keep one match of a pattern, or `fallback`.

    `group_select` selects one of the matches (-1: the last). If the pattern has groups, the first non-empty one counts.

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
        self.fallback = NotFound(fallback) if type(fallback) is str else fallback

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        return [[self._extract(value) for value in values] for values in responses]

    def _extract(self, value: Any) -> str:
        matches = self.regex.findall(value) if isinstance(value, str) else self.regex.findall("")
        if not matches:
            return self.fallback
        match = matches[self.group_select]
        if isinstance(match, tuple):
            found = next((group for group in match if group), None)
            if found is None:
                return NotFound(self.fallback.strip())
            match = found
        return str(match.strip())


@FILTERS.register("regex_pos")
class RegexPos:
    """Keep the tags of a text like `[('dog', 'NOUN'), ('runs', 'VERB')]`.

    Accepts the three settings of `regex`, but only `fallback` has an effect.

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
        return [[self._extract_tags(value) for value in values] for values in responses]

    def _extract_tags(self, value: Any) -> Any:
        pairs = _TAGGED.findall(value) if isinstance(value, str) else value
        return [tag for _, tag in pairs] or self.fallback
