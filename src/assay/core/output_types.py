"""The output types a task file can name: what a task asks a model for, and everything that depends on it.

A new output type is a member here, with its facts below. `Task` builds its requests and `Scorer` scores its answers.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["OutputType"]


class OutputType(StrEnum):
    """The value of `output_type`. A member is equal to its YAML name.

    >>> OutputType("multiple_choice").compares_choices, OutputType.GENERATE_UNTIL == "generate_until"
    (True, True)
    """

    GENERATE_UNTIL = "generate_until"
    MULTIPLE_CHOICE = "multiple_choice"
    LOGLIKELIHOOD = "loglikelihood"
    LOGLIKELIHOOD_ROLLING = "loglikelihood_rolling"
    GENERATE_UNTIL_MULTI_ROUND = "generate_until_multi_round"
    GENERATE_UNTIL_AGENTIC = "generate_until_agentic"
    GENERATE_VISUAL_COT = "generate_visual_cot"
    AGENT = "agent"

    @property
    def generates_text(self) -> bool:
        """Whether the model writes text. Other output types ask for log-probabilities."""
        return self in _GENERATES_TEXT

    @property
    def compares_choices(self) -> bool:
        """Whether the model scores one continuation per choice, so that the task needs `doc_to_choice`."""
        return self is OutputType.MULTIPLE_CHOICE

    @property
    def scores_whole_text(self) -> bool:
        """Whether the model scores the whole target: there is no question and there are no few-shot examples."""
        return self is OutputType.LOGLIKELIHOOD_ROLLING

    @property
    def is_dialogue(self) -> bool:
        """Whether answers lead to further questions."""
        return self in (
            OutputType.GENERATE_UNTIL_MULTI_ROUND,
            OutputType.GENERATE_UNTIL_AGENTIC,
            OutputType.AGENT,
        )

    @property
    def is_agent(self) -> bool:
        """Whether a solver drives the dialogue: tool calls, an environment, a simulated user."""
        return self is OutputType.AGENT

    @property
    def is_agentic(self) -> bool:
        """Whether the dialogue is an agent loop of lmms_eval, with a maximum number of steps and one final answer."""
        return self is OutputType.GENERATE_UNTIL_AGENTIC

    @property
    def sends_chat_messages(self) -> bool:
        """Whether a multimodal task sends chat messages to models that accept them. Otherwise media precede the text."""
        return self.generates_text and self is not OutputType.GENERATE_VISUAL_COT

    @property
    def can_repeat(self) -> bool:
        """Whether `--repeats` applies."""
        return self in (OutputType.GENERATE_UNTIL, OutputType.AGENT)

    @property
    def strips_answers(self) -> bool:
        """Whether lmms_eval strips white space from answers before it scores them."""
        return self in (OutputType.GENERATE_UNTIL, OutputType.GENERATE_VISUAL_COT)

    @property
    def is_lmms_eval_only(self) -> bool:
        """Whether only lmms_eval has this output type."""
        return self in _LMMS_EVAL_ONLY

    @property
    def default_metrics(self) -> tuple[str, ...]:
        """The metrics of a task without `metric_list`."""
        return _DEFAULT_METRICS.get(self, ("exact_match",))


_LMMS_EVAL_ONLY = frozenset(
    (
        OutputType.GENERATE_UNTIL_MULTI_ROUND,
        OutputType.GENERATE_UNTIL_AGENTIC,
        OutputType.GENERATE_VISUAL_COT,
    )
)
_GENERATES_TEXT = frozenset((OutputType.GENERATE_UNTIL, OutputType.AGENT, *_LMMS_EVAL_ONLY))
_DEFAULT_METRICS = {
    OutputType.LOGLIKELIHOOD: ("perplexity", "acc"),
    OutputType.LOGLIKELIHOOD_ROLLING: ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    OutputType.MULTIPLE_CHOICE: ("acc", "acc_norm"),
}
