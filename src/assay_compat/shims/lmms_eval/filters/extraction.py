"""Shim for `lmms_eval.filters.extraction`: base classes for filters of task helpers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lmms_eval.api.filter import Filter

from assay.scoring.filters.choices import MultiChoiceRegex, punctuation_table
from assay.scoring.filters.extraction import Regex

__all__ = ["ExtendedRegexFilter", "Filter", "MultiChoiceRegexFilter", "RegexFilter"]


class RegexFilter(Regex):
    """The `regex` filter. A subclass may compare documents, so it receives all of them."""

    per_document = False


class MultiChoiceRegexFilter(MultiChoiceRegex):
    """The `multi_choice_regex` filter, to derive from."""

    per_document = False


class ExtendedRegexFilter(RegexFilter):
    """Searches a text again after ignoring case, punctuation or patterns: two methods for derived classes."""

    punct_tbl: ClassVar[Mapping[int, None]] = punctuation_table()

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: str = "[invalid]",
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        regexes_to_ignore: Sequence[str] | None = None,
    ) -> None:
        super().__init__(regex_pattern, group_select, fallback)
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation
        self.regexes_to_ignore = regexes_to_ignore

    def filter_ignores(self, st: str) -> str:
        """Remove the ignored parts of a text."""
        for pattern in self.regexes_to_ignore or ():
            st = re.sub(pattern, "", st)
        if self.ignore_case:
            st = st.lower()
        return st.translate(self.punct_tbl) if self.ignore_punctuation else st

    def find_match(
        self, regex: re.Pattern[str], resp: str, convert_dict: Mapping[str, str] | None = None
    ) -> Any:
        """Return one match of a pattern, mapped by `convert_dict`, or an empty list without a match."""
        matches = regex.findall(resp)
        if not matches:
            return matches
        match = matches[self.group_select]
        if isinstance(match, tuple):
            match = next(group for group in match if group)
        match = match.strip()
        return (convert_dict or {}).get(match, match) if match else match
