"""Document endings: every document of a run ends in exactly one of these states.

Only the score of a `scored` document is fully reliable. Documents with another ending can have a score too (published
results count unparsable answers as wrong); score bounds show how much the result depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from assay.core.records.responses import Response

__all__ = [
    "ENDINGS",
    "MIN_UNSCORED_SHARE_FOR_BOUNDS",
    "RETRIED_ENDINGS",
    "Ending",
    "classify_ending",
    "explain_missing_answer",
    "is_reasoning_truncated",
]

Ending = Literal[
    "scored",
    "unparsed",
    "unparsed-call",
    "invalid-format",
    "truncated",
    "empty",
    "refused",
    "turn-limit",
    "token-limit",
    "cost-limit",
    "time-limit",
    "tool-error-limit",
    "workspace-limit",
    "sandbox-limit",
    "step-limit",
    "in-doubt",
    "user-left",
    "user-failed",
    "environment-failed",
    "unscored",
    "judge-failed",
    "failed",
    "skipped",
]

ENDINGS: dict[Ending, str] = {
    "scored": "answered and scored",
    "unparsed": "no answer-extraction filter found an answer in the text",
    "unparsed-call": "a tool call has no valid form: not parsable, or arguments that are not a JSON object",
    "invalid-format": "the response does not match the `response_format` of the task",
    "truncated": "the response hit the token limit before an answer was found",
    "empty": "the response is empty",
    "refused": "the model or its content filter refused to answer",
    "turn-limit": "the agent reached `max_turns`",
    "token-limit": "the agent reached `max_tokens`",
    "cost-limit": "the agent reached `max_cost`",
    "time-limit": "the agent reached `max_seconds`",
    "tool-error-limit": "the agent reached `max_tool_errors`",
    "workspace-limit": "the agent left files that no snapshot can hold, such as too many",
    "sandbox-limit": "the program of an external agent reached a limit of its sandbox, such as the memory",
    "step-limit": "the solver took too many steps without a response of the model",
    "in-doubt": "the process died during a tool call that must not run twice; not scored",
    "user-left": "the simulated user ended the conversation before the agent spoke; not scored",
    "user-failed": "the model of the simulated user failed; tried again when the run is resumed",
    "environment-failed": "the environment of the agent raised an error; tried again when the run is resumed",
    "unscored": "task code raised an error, or a judge returned no verdict",
    "judge-failed": "a judge did not respond or the workers died; judged again when the run is resumed",
    "failed": "the request failed: server, network, media or prompt error",
    "skipped": "not scored (`--predict_only`)",
}
"""Every ending and its meaning, in display order."""

RETRIED_ENDINGS: tuple[Ending, ...] = ("failed", "judge-failed", "user-failed", "environment-failed")
"""Documents with these endings are processed again when the run is resumed."""

MIN_UNSCORED_SHARE_FOR_BOUNDS = 0.01
"""Score bounds are shown when a larger share of documents than this has another ending than `scored`."""


def classify_ending(responses: Sequence[Response], answer_found: bool | None) -> Ending:
    """Return the ending of a document from its responses.

    `answer_found`: whether an answer-extraction filter found an answer; None if the pipeline has no such filter.
    An extracted answer counts even if the text around it was truncated.

    >>> classify_ending([Response(request_id="", value="so it is 5", finish="length")], None)
    'truncated'
    >>> classify_ending([Response(request_id="", value="so it is 5", finish="length")], True)
    'scored'
    """
    if not responses:
        return "scored"
    first = responses[0]
    if not isinstance(first.value, str):
        return "scored"
    is_typical = len(responses) == 1 and answer_found is not False and first.finish in ("", "stop")
    if is_typical and (answer_found or first.value.strip() or first.tool_calls):
        return "scored"
    if all(response.finish == "refused" for response in responses):
        return "refused"
    if not answer_found:
        if all(response.finish == "length" for response in responses):
            return "truncated"
        if not any(
            response.tool_calls or (isinstance(response.value, str) and response.value.strip())
            for response in responses
        ):
            return "empty"
    return "unparsed" if answer_found is False else "scored"


def is_reasoning_truncated(responses: Sequence[Response]) -> bool:
    """Whether every response hit the token limit inside its reasoning. There is no answer to score.

    >>> is_reasoning_truncated([Response(request_id="", value="", reasoning="so it", finish="length")])
    True
    """
    return bool(responses) and all(
        response.finish == "length"
        and _has_reasoning(response)
        and response.value == ""
        and not response.tool_calls
        for response in responses
    )


def _has_reasoning(response: Response) -> bool:
    """Whether the model reasoned. Some services return only the number of reasoning tokens."""
    return response.reasoning is not None or (
        response.usage is not None and response.usage.reasoning_tokens > 0
    )


def explain_missing_answer(responses: Sequence[Response]) -> str:
    """Return why responses with reasoning have no answer; an empty text if they have one."""
    if not responses or any(
        not _has_reasoning(response) or response.value or response.tool_calls for response in responses
    ):
        return ""
    if is_reasoning_truncated(responses):
        return "the token limit ended the reasoning; there is no answer"
    return "the response consists of reasoning; there is no answer"
