"""What `lmms_eval.llm_judge.prompt` offers: what is asked when a helper brings no prompt of its own.

The placeholders are lmms-eval's; the words are Assay's.
"""

from __future__ import annotations

__all__ = ["BINARY_JUDGE_PROMPT", "COMPARATIVE_JUDGE_PROMPT", "CORRECTNESS_JUDGE_PROMPT"]

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
