"""HumanEval: programs made of prompt and completion, and the share of them that pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.hf_evaluate.code_eval import code_eval


def completed(responses: Sequence[Sequence[str]], documents: Sequence[dict[str, Any]]) -> list[list[str]]:
    r"""The beginning that was given, and what the model wrote after it.

    >>> completed([["    return 1\n"]], [{"prompt": "def one():\n"}])
    [['def one():\n    return 1\n']]
    """
    return [
        [document["prompt"] + response for response in values]
        for values, document in zip(responses, documents, strict=True)
    ]


def completed_in_a_block(
    responses: Sequence[Sequence[str]], documents: Sequence[dict[str, Any]]
) -> list[list[str]]:
    r"""The same, where the model ends a block of Markdown and may go on with words.

    >>> completed_in_a_block([["    return 1\n```\nThat's it."]], [{"prompt": "def one():\n"}])
    [['def one():\n    return 1\n']]
    """
    code = [[response.partition("```")[0] for response in values] for values in responses]
    return completed(code, documents)


def pass_at_k(
    references: Sequence[str], predictions: Sequence[Sequence[str]], k: int | Sequence[int]
) -> dict[str, float]:
    """For each k: how likely one of k programs, drawn from those of a problem, passes its tests."""
    scores, _ = code_eval(
        references=references, predictions=predictions, k=[k] if isinstance(k, int) else list(k)
    )
    return scores
