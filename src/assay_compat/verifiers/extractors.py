"""Implementation of `lmms_eval.verifiers.extractors`."""

from __future__ import annotations

import re
from typing import Any

from assay.scoring.filters.transformation import strip_thinking
from assay_compat.verifiers.interfaces import Extractor

__all__ = ["MCQExtractor", "NumberExtractor", "RegexExtractor", "StripExtractor", "StripReasoningExtractor"]


class StripReasoningExtractor(Extractor):
    """Removes text between thinking tags."""

    def __init__(self, tag_pairs: list[list[str]] | None = None) -> None:
        self.tag_pairs = tag_pairs or [["<think>", "</think>"], ["<thinking>", "</thinking>"]]

    def extract(self, text: Any, **kwargs: Any) -> str:
        if not isinstance(text, str):
            return "" if text is None else str(text)
        return strip_thinking(text, self.tag_pairs)


class RegexExtractor(Extractor):
    """Extracts the first match of a pattern or of one of its groups."""

    def __init__(self, pattern: str, group: int = 1, fallback: str = "", flags: int = 0) -> None:
        self.regex = re.compile(pattern, flags)
        self.group = group
        self.fallback = fallback

    def extract(self, text: str, **kwargs: Any) -> str:
        found = self.regex.search(text)
        if found is None:
            return self.fallback
        return str(found.group(self.group if self.group <= self.regex.groups else 0)).strip()


class MCQExtractor(Extractor):
    """Extracts the letter of a choice with the shared helper of the task tree."""

    def __init__(self, choices: list[str] | None = None) -> None:
        self.choices = choices

    def extract(self, text: str, **kwargs: Any) -> str:
        from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

        return str(extract_mcq_answer(text, kwargs.get("choices", self.choices)))


class NumberExtractor(Extractor):
    """Extracts the content of \\boxed{}, else the last number."""

    def __init__(self, fallback: str = "") -> None:
        self.fallback = fallback

    def extract(self, text: str, **kwargs: Any) -> str:
        boxed = re.search(r"\\boxed\{([^}]+)\}", text)
        if boxed:
            return boxed[1].strip()
        numbers = re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", text)
        return numbers[-1].replace(",", "") if numbers else self.fallback


class StripExtractor(Extractor):
    """Removes surrounding white space and end-of-text tokens."""

    def extract(self, text: str, **kwargs: Any) -> str:
        for token in ("</s>", "<|endoftext|>", "<|end_of_sentence|>", "<|im_end|>", "[/INST]"):
            text = text.replace(token, "")
        return text.strip()
