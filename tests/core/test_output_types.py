"""Tests of the output types."""

from __future__ import annotations

import json
import pickle

import pytest

from assay.core.output_types import OutputType
from assay.core.records.specs import TaskSpec


def test_members_are_equal_to_their_yaml_names_and_serialise_as_text() -> None:
    assert str(OutputType.MULTIPLE_CHOICE) == "multiple_choice"
    assert json.dumps({"output_type": OutputType.MULTIPLE_CHOICE}) == '{"output_type": "multiple_choice"}'
    assert f"a {OutputType.GENERATE_UNTIL} task" == "a generate_until task"
    assert pickle.loads(pickle.dumps(OutputType.LOGLIKELIHOOD)) is OutputType.LOGLIKELIHOOD


@pytest.mark.parametrize(
    ("question", "names"),
    [
        (
            "generates_text",
            "generate_until generate_until_multi_round generate_until_agentic generate_visual_cot agent",
        ),
        ("compares_choices", "multiple_choice"),
        ("scores_whole_text", "loglikelihood_rolling"),
        ("is_dialogue", "generate_until_multi_round generate_until_agentic agent"),
        ("is_agentic", "generate_until_agentic"),
        ("sends_chat_messages", "generate_until generate_until_multi_round generate_until_agentic agent"),
        ("can_repeat", "generate_until agent"),
        ("is_agent", "agent"),
        ("strips_answers", "generate_until generate_visual_cot"),
        ("is_lmms_eval_only", "generate_until_multi_round generate_until_agentic generate_visual_cot"),
    ],
)
def test_facts(question: str, names: str) -> None:
    assert {str(one) for one in OutputType if getattr(one, question)} == {*names.split()}


def test_default_metrics() -> None:
    assert OutputType.MULTIPLE_CHOICE.default_metrics == ("acc", "acc_norm")
    assert OutputType.GENERATE_UNTIL_AGENTIC.default_metrics == ("exact_match",)


def test_a_task_spec_accepts_the_yaml_name() -> None:
    name: str = "loglikelihood"
    assert TaskSpec(name="a", output_type=name).output_type is OutputType.LOGLIKELIHOOD  # type: ignore[arg-type]
