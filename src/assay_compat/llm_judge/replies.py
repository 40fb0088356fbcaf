"""Stand-in for `assay_compat.llm_judge.replies`: prompts made and replies read as lmms-eval does.

The reading is as forgiving as lmms-eval's, because scores must be the same; Assay's own judges are strict.
"""

from __future__ import annotations

import json
import re
from typing import Any

from assay_compat.llm_judge.prompt import (
    BINARY_JUDGE_PROMPT,
    COMPARATIVE_JUDGE_PROMPT,
    CORRECTNESS_JUDGE_PROMPT,
)

__all__ = ["JudgePromptBuilder", "ResponseParser"]

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DIGITS = ("0/1", "1/0")


class JudgePromptBuilder:
    """Prompts: a helper's own with its places filled, or one of ours."""

    @staticmethod
    def build_binary_prompt(
        question: str,
        answer: str,
        prediction: str,
        output_format: str = "0/1",
        custom_prompt: str | None = None,
        **kwargs: Any,
    ) -> str:
        if custom_prompt:
            return custom_prompt.format(
                question=question, answer=answer, pred=prediction, prediction=prediction, **kwargs
            )
        positive, negative = ("1", "0") if output_format in _DIGITS else ("Yes", "No")
        return BINARY_JUDGE_PROMPT.format(
            question=question, answer=answer, prediction=prediction, positive=positive, negative=negative
        )

    @staticmethod
    def build_comparative_prompt(
        question: str,
        response1: str,
        response2: str,
        context: str | None = None,
        score_range: tuple[int, int] = (1, 10),
        custom_prompt: str | None = None,
        evaluation_instruction: str | None = None,
        **kwargs: Any,
    ) -> str:
        if custom_prompt:
            return custom_prompt.format(
                question=question, response1=response1, response2=response2, context=context or "", **kwargs
            )
        low, high = score_range[0], score_range[1]
        return COMPARATIVE_JUDGE_PROMPT.format(
            question=question,
            response1=response1,
            response2=response2,
            context_section=f"[Context]\n{context}\n\n" if context else "",
            min_score=low,
            max_score=high,
            evaluation_instruction=evaluation_instruction or f"Rate both from {low} to {high}.",
        )

    @staticmethod
    def build_correctness_prompt(
        question: str, answer: str, prediction: str, output_format: str = "yes/no", **kwargs: Any
    ) -> str:
        positive, negative = ("Yes", "No") if output_format == "yes/no" else ("1", "0")
        return CORRECTNESS_JUDGE_PROMPT.format(
            question=question, answer=answer, prediction=prediction, positive=positive, negative=negative
        )


class ResponseParser:
    """Replies: a 1 anywhere, a yes at the start, the first numbers, the first object."""

    @staticmethod
    def parse_binary_response(response: str, output_format: str = "0/1") -> int | bool:
        said = response.strip().lower()
        return int("1" in said) if output_format in _DIGITS else said.startswith("yes")

    @staticmethod
    def parse_score_response(response: str, score_range: tuple[float, float] | None = None) -> float:
        numbers = _NUMBER.findall(response) if isinstance(response, str) else []
        if not numbers:
            return score_range[0] if score_range else 0.0
        score = float(numbers[0])
        return max(score_range[0], min(score, score_range[1])) if score_range else score

    @staticmethod
    def parse_comparative_response(response: str) -> tuple[float, float]:
        lines = response.strip().split("\n") if isinstance(response, str) else [""]
        numbers = _NUMBER.findall(lines[0].replace(",", " ").replace(";", " "))
        return (float(numbers[0]), float(numbers[1])) if len(numbers) >= 2 else (-1.0, -1.0)

    @staticmethod
    def parse_json_response(response: str) -> Any:
        found = re.search(r"\{.*\}", response, re.DOTALL) if isinstance(response, str) else None
        try:
            return json.loads(found.group()) if found else {}
        except ValueError:
            return {}
