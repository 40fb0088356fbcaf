"""Passes are planned before they are computed: every token once, and again, smaller, where memory was less than believed."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.models.hf.prefix_sharing.test_pass_execution import load, random_tree

from assay.models.hf.batch_budget import Budget
from assay.models.hf.prefix_sharing.model_runner import Runner
from assay.models.hf.prefix_sharing.pass_execution import Ahead, compute
from assay.models.hf.prefix_sharing.pass_planning import Plan, Planned
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(load("llama"))


def everything(node: Node) -> Any:
    return np.arange(len(node.tokens))


def tree() -> Node:
    return build_tree([pair.inputs for pair in random_tree(2)])


def planned(plan: Plan, size: int) -> list[Planned]:
    return list(iter(lambda: plan.next(size), None))


def told(passes: list[Planned]) -> int:
    return sum(len(one.prepared.wanted) for one in passes)


@pytest.mark.parametrize("size", [16, 100, 4096])
def test_every_token_is_asked_for_once(runner: Runner, size: int) -> None:
    passes = planned(Plan(tree(), everything, runner), size)
    assert told(passes) == tree().weight
    assert all(one.leaves is None or one.leaves.length > 0 for one in passes)


def test_what_a_pass_starts_from_is_as_long_as_was_planned(runner: Runner) -> None:
    for one, computed in compute(Ahead(Plan(tree(), everything, runner), Budget(32)), runner):
        if one.leaves is not None:
            assert one.leaves.kept is computed.past is not None
            assert computed.past.length == one.leaves.length


@pytest.mark.parametrize("back", range(5))
def test_a_plan_goes_back_to_any_pass_and_loses_nothing(runner: Runner, back: int) -> None:
    plan = Plan(tree(), everything, runner)
    begun = list(islice(iter(lambda: plan.next(100), None), 6))
    plan.return_to(begun[back])
    again = planned(plan, 20)
    assert told(begun[:back]) + told(again) == tree().weight
    assert max(one.prepared.tokens.shape[1] for one in again) < 100


def test_passes_planned_for_more_memory_than_is_left_are_planned_again(runner: Runner) -> None:
    budget = Budget(128, least=4)
    ahead = Ahead(Plan(tree(), everything, runner), budget).begin()
    for _ in range(3):
        budget.halve()
    with ahead:
        passes = list(iter(ahead.take, None))
    assert {one.size for one in passes} == {16}
    assert told(passes) == tree().weight
