"""Judge prompts and reply parsing of `lmms_eval.llm_judge.prompt` and `.utils`.

The placeholders of the prompts are lmms-eval's, the wording is Assay's. Replies are parsed as leniently as in lmms-eval,
so that scores are identical; Assay's own judges are strict.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = [
    "BINARY_JUDGE_PROMPT",
    "COMPARATIVE_JUDGE_PROMPT",
    "CORRECTNESS_JUDGE_PROMPT",
    "JudgePromptBuilder",
    "ResponseParser",
]

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DIGITS = ("0/1", "1/0")


class JudgePromptBuilder:
    """Builds prompts from a custom template or a default one."""

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
    """Parses replies: a 1 anywhere, a leading yes, the first numbers, or the first JSON object."""

    @staticmethod
    def parse_binary_response(response: str, output_format: str = "0/1") -> int | bool:
        reply = response.strip().lower()
        return int("1" in reply) if output_format in _DIGITS else reply.startswith("yes")

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
        except (ValueError, RecursionError):
            return {}


BINARY_JUDGE_PROMPT = """\
Decide whether a prediction answers a question correctly, judged strictly by the true answer.

Question:
```
{question}
```
True answer:
```
{answer}
```
Prediction:
```
{prediction}
```

How to decide:
- A prediction may reason first; what counts is the answer it ends with.
- A choice may be named by its letter or by its content.
- Other words, formats, capitals and spaces for the same thing are fine, and so is ordinary rounding of numbers.
- A part of the answer, or the answer with something wrong added, is not correct. Neither is a number in a wrong unit.

Write {positive} if it is correct and {negative} otherwise. Write nothing else."""

COMPARATIVE_JUDGE_PROMPT = """\
Rate how well two assistants answered the same question: how helpful, relevant, accurate and detailed each answer is,
from {min_score} to {max_score}, higher is better. The order in which they stand means nothing.

The first line of your reply holds the two ratings and nothing else: the one of Assistant 1, a space, the one of
Assistant 2. Explain them in the lines after it.

[Question]
{question}

{context_section}

[Assistant 1]
{response1}
[End of Assistant 1]

[Assistant 2]
{response2}
[End of Assistant 2]

[Instruction]
{evaluation_instruction}"""

CORRECTNESS_JUDGE_PROMPT = """\
Compare the result of a solution with the correct answer to a question. Only the result counts, not the way to it, and
only its meaning: notation, LaTeX, boxes and other dressing make no difference.

Question:
{question}

Correct answer:
{answer}

Solution:
{prediction}

Write "{positive}" if the results are the same and "{negative}" if they are not. Write nothing else."""

RUBRIC_JUDGE_PROMPT = """\
Rate a response by each item of a rubric.

Question: {question}

Response: {prediction}

Rubric:
{rubric}

Reply with a JSON object that holds a score for each item."""
