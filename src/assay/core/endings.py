"""How a document ended: exactly one word each, so that nothing is lost between two columns.

`scored` is the only one whose score can be taken at its word. A document of another ending may have a number all the
same (published scores count an answer nobody could parse as wrong); the bounds say what it might have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from assay.core.responses import Response

__all__ = ["DOUBT_SHARE", "ENDINGS", "Ending", "ending_of"]

Ending = Literal[
    "scored", "unparsed", "truncated", "empty", "refused", "unscored", "judge-failed", "failed", "skipped"
]

ENDINGS: dict[Ending, str] = {
    "scored": "answered and judged",
    "unparsed": "no filter that looks for an answer in the text found one",
    "truncated": "the answer hit the token limit before one was found",
    "empty": "the answer was empty",
    "refused": "the model or its content filter refused to answer",
    "unscored": "the task's own code could not judge it, or a judge gave no verdict",
    "judge-failed": "a judge did not answer: judged again when the run is continued",
    "failed": "no answer could be had: server, network, media or prompt trouble",
    "skipped": "nobody wanted it judged (`--predict_only`)",
}
"""Every ending with its meaning, in the order tables show them."""

DOUBT_SHARE = 0.01
"""The share of documents that did not end as scored above which a score is shown with its bounds."""


def ending_of(responses: Sequence[Response], found: bool | None) -> Ending:
    """How a document ended whose responses were judged.

    `found`: whether a filter that looks for an answer found one; None where none looks. An answer that was found counts
    however the text around it ended.

    >>> ending_of([Response(request_id="", value="so it is 5", finish="length")], None)
    'truncated'
    >>> ending_of([Response(request_id="", value="so it is 5", finish="length")], True)
    'scored'
    """
    if not responses:
        return "scored"
    first = responses[0]
    if not isinstance(first.value, str):
        return "scored"
    as_most = len(responses) == 1 and found is not False and first.finish in ("", "stop")
    if as_most and (found or first.value.strip()):
        return "scored"
    if all(response.finish == "refused" for response in responses):
        return "refused"
    if not found:
        if all(response.finish == "length" for response in responses):
            return "truncated"
        if not any(isinstance(response.value, str) and response.value.strip() for response in responses):
            return "empty"
    return "unparsed" if found is False else "scored"
