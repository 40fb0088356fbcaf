"""Differences between two runs other than the model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model
from tests.viewer.comparison.conftest import Runs, right_for

import assay
from assay.testing import ScriptedModel
from assay.viewer.comparison.comparison_table import collect_remarks, describe_difference


def test_different_prompts_fewshot_examples_and_settings_are_warnings(runs: Runs) -> None:
    first = runs(right_for(1))
    second = runs(right_for(1), num_fewshot=1, system_instruction="Think.", gen_kwargs={"temperature": 0.5})
    said = dict.fromkeys(f"{one.kind}: {one.what}" for one in assay.compare(first, second).mismatches)
    assert "prompts: the prompts differ" in said
    assert "few-shot: few-shot examples: 0 and 1" in said
    assert "prompts: system instruction: none and Think." in said
    assert any(text.startswith("sampling: generation settings: temperature") for text in said)


def pick_word(word: str, request: Any) -> str:
    return word


class Loaded(ScriptedModel):
    """A scripted model that is loaded with a dtype."""

    def __init__(self, answers: Any, name: str, **identity: str) -> None:
        super().__init__(answers, name=name)
        self._identity = identity

    async def identify(self) -> dict[str, str]:
        return {"name": self.name, **self._identity}


def test_no_run_is_better_if_prompts_differ(runs: Runs) -> None:
    first, second = runs(right_for()), runs(right_for(*range(40)), system_instruction="Think.")
    found = assay.compare(first, second)
    (row,) = found.rows
    assert row.p_value < 0.001
    assert row.blocked == ("prompts",) and row.better is None and not row.differs
    assert describe_difference(row) == "not comparable: prompts"
    assert any("no run is called better" in text for _, text in collect_remarks(found))
    (row,) = assay.compare(first, second, allow=["prompts"]).rows
    assert row.better


def test_no_run_is_better_if_the_metric_is_defined_differently(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["no"]}]}
    (row,) = assay.compare(runs(right_for()), runs(right_for(*range(40)), keys=keys)).rows
    assert row.blocked == ("scoring",) and row.better is None


def test_no_run_is_better_if_the_judges_differ(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "correct", "judge": {"kind": "binary"}}]}
    strict, kind = (make_model(partial(pick_word, word), name=word) for word in ("incorrect", "correct"))
    found = assay.compare(
        runs(right_for(), keys=keys, judge=[strict]), runs(right_for(), keys=keys, judge=[kind])
    )
    (row,) = found.rows
    assert row.blocked == ("judge",) and row.better is None
    assert any(one.kind == "judge" and "incorrect" in one.what for one in found.mismatches)


@pytest.mark.parametrize(
    ("names", "blocked"),
    [(("one", "one"), ("identity",)), (("one", "two"), ())],
    ids=["same model", "two models"],
)
@pytest.mark.parametrize("key", ["dtype", "commit", "load_in_4bit"])
def test_identity_blocks_the_verdict_for_one_model(
    sums: Path, tmp_path: Path, key: str, names: tuple[str, str], blocked: tuple[str, ...]
) -> None:
    first, second = (
        assay.run(
            model=Loaded(right_for(*range(count)), name, **{key: f"value {count}"}),
            tasks=[str(sums)],
            no_cache=True,
            output_path=str(tmp_path / f"{name}-{count}"),
        )
        for name, count in zip(names, (10, 30), strict=True)
    )
    (row,) = assay.compare(first, second).rows
    assert row.blocked == blocked
    assert row.better is (None if blocked else True)


def test_other_judges_do_not_block_metrics_without_a_judge(runs: Runs) -> None:
    judged = {"metric": "correct", "judge": {"kind": "binary"}}
    keys = {"metric_list": [{"metric": "exact_match"}, judged]}
    strict, kind = (make_model(partial(pick_word, word), name=word) for word in ("incorrect", "correct"))
    found = assay.compare(
        runs(right_for(), keys=keys, judge=[strict]),
        runs(right_for(*range(40)), keys=keys, judge=[kind]),
        metrics=["exact_match", "correct"],
    )
    assert {row.metric: row.blocked for row in found.rows} == {"exact_match": (), "correct": ("judge",)}
    assert found.rows[0].better
    (one,) = [one for one in found.mismatches if one.kind == "judge"]
    assert one.what == "judges: incorrect and correct"
