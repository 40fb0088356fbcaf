"""Passes compute every token once and are replanned with fewer tokens when memory runs out."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.models.hf.prefix_sharing.test_pass_execution import load, make_random_pairs

from assay.models.hf.batch_budget import BatchBudget
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.prefix_sharing.pass_execution import PassPrefetcher, run_passes
from assay.models.hf.prefix_sharing.pass_planning import PassPlan, PlannedPass
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(load("llama"))


def select_all(node: Node) -> Any:
    return np.arange(len(node.tokens))


def tree() -> Node:
    return build_tree([pair.inputs for pair in make_random_pairs(2)])


def plan_all(plan: PassPlan, size: int) -> list[PlannedPass]:
    return list(iter(lambda: plan.plan_next(size), None))


def count_reported_tokens(passes: list[PlannedPass]) -> int:
    return sum(len(one.prepared.wanted) for one in passes)


@pytest.mark.parametrize("size", [16, 100, 4096])
def test_every_token_is_computed_once(runner: ModelRunner, size: int) -> None:
    passes = plan_all(PassPlan(tree(), select_all, runner), size)
    assert count_reported_tokens(passes) == tree().weight
    assert all(one.output_prefix is None or one.output_prefix.length > 0 for one in passes)


def test_the_cache_of_a_pass_has_the_planned_length(runner: ModelRunner) -> None:
    for one, computed in run_passes(
        PassPrefetcher(PassPlan(tree(), select_all, runner), BatchBudget(32)), runner
    ):
        if one.output_prefix is not None:
            assert one.output_prefix.cache is computed.past is not None
            assert computed.past.length == one.output_prefix.length


@pytest.mark.parametrize("back", range(5))
def test_a_plan_can_rewind_to_any_pass(runner: ModelRunner, back: int) -> None:
    plan = PassPlan(tree(), select_all, runner)
    begun = list(islice(iter(lambda: plan.plan_next(100), None), 6))
    plan.rewind_to(begun[back])
    again = plan_all(plan, 20)
    assert count_reported_tokens(begun[:back]) + count_reported_tokens(again) == tree().weight
    assert max(one.prepared.tokens.shape[1] for one in again) < 100


def test_passes_larger_than_the_current_budget_are_replanned(runner: ModelRunner) -> None:
    budget = BatchBudget(128, minimum=4)
    ahead = PassPrefetcher(PassPlan(tree(), select_all, runner), budget).start()
    for _ in range(3):
        budget.halve()
    with ahead:
        passes = list(iter(ahead.take_next, None))
    assert {one.size for one in passes} == {16}
    assert count_reported_tokens(passes) == tree().weight
