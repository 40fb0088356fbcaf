"""Synthetic requests of `assay bench model`."""

from __future__ import annotations

import pytest

from assay.core.errors import InvalidOption
from assay.core.ports import Traits
from assay.core.records.requests import Generate, Likelihood
from assay.engine.benchmarking.workloads import WORKLOADS, WorkloadSize, build_requests, select_workloads

SIZE = WorkloadSize(requests=10, prompt_words=40, output_tokens=16)
LOCAL = Traits(abilities=frozenset({"generate", "likelihood", "rolling", "chat"}))
CHAT = Traits(abilities=frozenset({"generate", "chat", "image"}))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_requests_are_distinct_and_reproducible(workload: str) -> None:
    requests = build_requests(workload, SIZE)
    assert len({one.id for one in requests}) == len(requests) == 10
    assert [one.id for one in build_requests(workload, SIZE)] == [one.id for one in requests]
    assert {one.id for one in build_requests(workload, SIZE, seed=1)}.isdisjoint(one.id for one in requests)
    assert all(one.prompt.chat == (workload == "chat") for one in requests)


def test_prompts_and_answers_have_unequal_lengths_around_the_mean() -> None:
    requests = build_requests("generate", WorkloadSize(requests=200, prompt_words=40, output_tokens=16))
    words = [len(one.prompt.text.split()) for one in requests]
    limits = [one.settings.max_tokens or 0 for one in requests if isinstance(one, Generate)]
    assert (min(words), max(words)) == (10, 70)
    assert (min(limits), max(limits)) == (4, 28)
    assert sum(words) / 200 == pytest.approx(40, rel=0.15)


def test_choices_share_their_context_and_contexts_their_prefix() -> None:
    requests = [one for one in build_requests("likelihood", SIZE) if isinstance(one, Likelihood)]
    assert [one.document for one in requests] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert len({one.prompt.text for one in requests}) == 3
    assert len({tuple(one.prompt.text.split()[:30]) for one in requests}) == 1


def test_workloads_follow_from_the_abilities() -> None:
    assert select_workloads(LOCAL, (), is_remote=False) == ("generate", "likelihood", "rolling")
    assert select_workloads(LOCAL, (), is_remote=True) == ("generate", "likelihood", "rolling")
    assert select_workloads(CHAT, (), is_remote=True) == ("chat",)
    assert select_workloads(LOCAL, ("chat", "rolling", "chat"), is_remote=False) == ("chat", "rolling")


def test_unknown_and_unsupported_workloads_are_errors() -> None:
    with pytest.raises(InvalidOption, match="unknown workload `speed`"):
        select_workloads(LOCAL, ("speed",), is_remote=False)
    with pytest.raises(InvalidOption, match="`rolling`: it lacks rolling"):
        select_workloads(CHAT, ("rolling",), is_remote=True)
