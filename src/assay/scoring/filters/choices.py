"""The filter that finds which choice of a multiple-choice question a free text means."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS
from assay.scoring.filters.extraction import Regex

__all__ = ["MultiChoiceRegex", "punctuation_table"]


@cache
def punctuation_table() -> dict[int, None]:
    """Return all Unicode punctuation characters for `str.translate`. Cached, because it checks a million characters."""
    return dict.fromkeys(
        point for point in range(sys.maxunicode) if unicodedata.category(chr(point))[0] == "P"
    )


@FILTERS.register("multi_choice_regex")
class MultiChoiceRegex(Regex):
    """Keep one match of the pattern, or the letter of the choice whose text occurs, or a letter after a colon.

    The document needs a field `choices`. Letters are in brackets, as in the references of these tasks.

    >>> MultiChoiceRegex(r"\\(([A-Z])\\)").apply([["It is Bern.", "answer: A"]], [{"choices": ["Rome", "Bern"]}] )
    [['(B)', '(A)']]
    """

    per_document: ClassVar[bool] = True

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

    def apply(self, responses: Sequence[Any], documents: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        return [
            self._extract_answers(values, document["choices"])
            for values, document in zip(responses, documents, strict=True)
        ]

    def _extract_answers(self, values: Sequence[Any], choices: Sequence[str]) -> list[Any]:
        fallbacks: tuple[re.Pattern[str], re.Pattern[str], dict[str, str], dict[str, str]] | None = None
        answers = []
        for value in values:
            answer = self._match(self.regex, value, {})
            if not answer:
                if fallbacks is None:  # compiled only if the pattern does not match
                    fallbacks = self._compile_fallbacks(choices)
                by_text, by_letter, texts, letters = fallbacks
                answer = self._match(by_text, self._normalise(value), texts)
                answer = answer or self._match(by_letter, value, letters)
            answers.append(answer or self.fallback)
        return answers

    def _compile_fallbacks(
        self, choices: Sequence[str]
    ) -> tuple[re.Pattern[str], re.Pattern[str], dict[str, str], dict[str, str]]:
        plain = [self._normalise(choice.strip()) for choice in choices]
        names = [chr(ord("A") + index) for index in range(len(plain))]
        letters = {name: f"({name})" for name in names}
        texts = {text: f"({name})" for text, name in zip(plain, names, strict=True)}
        longest_first = sorted((re.escape(text) for text in plain), key=len, reverse=True)
        return re.compile("|".join(longest_first)), re.compile(rf":[\s]*({'|'.join(names)})"), texts, letters

    def _match(self, regex: re.Pattern[str], value: Any, names: Mapping[str, str]) -> str:
        matches = regex.findall(value) if isinstance(value, str) else regex.findall("")
        if not matches:
            return ""
        match = matches[self.group_select]
        if isinstance(match, tuple):
            match = next((group for group in match if group), "")
        match = str(match.strip())
        return names.get(match, match) if match else match

    def _normalise(self, text: Any) -> Any:
        for pattern in self.regexes_to_ignore or ():
            text = re.sub(pattern, "", text)
        if self.ignore_case:
            text = text.lower()
        if self.ignore_punctuation:
            text = text.translate(punctuation_table())
        return text
