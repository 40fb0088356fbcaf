"""Differences between two runs other than the model."""

from __future__ import annotations

from tests.viewer.comparison.conftest import Runs, right_for

import assay


def test_different_prompts_fewshot_examples_and_settings_are_warnings(runs: Runs) -> None:
    first = runs(right_for(1))
    second = runs(right_for(1), num_fewshot=1, system_instruction="Think.", gen_kwargs={"temperature": 0.5})
    said = dict.fromkeys(f"{one.kind}: {one.what}" for one in assay.compare(first, second).mismatches)
    assert "prompts: the prompts differ" in said
    assert "few-shot: few-shot examples: 0 and 1" in said
    assert "prompts: system instruction: none and Think." in said
    assert any(text.startswith("sampling: generation settings: temperature") for text in said)
