"""Resources of a replica."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.replicas.resources import (
    build_actor_options,
    check_resources,
    compute_resources,
    list_missing,
)


def test_resources_get_rays_names() -> None:
    found = check_resources({"gpu": 0.5, "CPU": "4", "memory": 8e9, "tpu_v5": 1})
    assert found == {"GPU": 0.5, "CPU": 4.0, "memory": 8e9, "tpu_v5": 1.0}
    assert build_actor_options(found) == {
        "num_cpus": 4.0, "num_gpus": 0.5, "memory": 8_000_000_000, "resources": {"tpu_v5": 1.0}
    }  # fmt: skip


@pytest.mark.parametrize("amount", ["many", -1, True, float("nan"), float("inf"), None])
def test_invalid_amounts_are_rejected(amount: Any) -> None:
    with pytest.raises(InvalidOption, match="invalid amount"):
        check_resources({"gpu": amount})


@pytest.mark.parametrize(
    ("model", "arguments", "device", "gpus"),
    [
        ("vllm", {"tensor_parallel_size": 4}, None, 4),
        ("vllm", {"tensor_parallel_size": "2", "pipeline_parallel_size": 2}, None, 4),
        ("hf", {}, None, 1),
        ("hf", {}, "cpu", 0),
        ("hf", {"device": "cpu"}, None, 0),
        ("embedded", {}, None, 0),
        ("my-plugin", {}, "cuda", 1),
        ("vllm", {"tensor_parallel_size": "two"}, None, 1),
    ],
)
def test_a_replica_gets_the_gpus_of_its_parallel_sizes(
    model: str, arguments: dict[str, Any], device: str | None, gpus: int
) -> None:
    assert compute_resources({}, model, arguments, device, {"GPU": 8, "CPU": 64}).get("GPU", 0) == gpus
    assert "GPU" not in compute_resources({}, model, arguments, device, {"CPU": 64})


def test_the_users_resources_take_precedence() -> None:
    assert compute_resources({"cpu": 2}, "vllm", {"tensor_parallel_size": 4}, None, {"GPU": 8}) == {
        "CPU": 2.0
    }


@pytest.mark.parametrize(
    ("nodes", "wanted", "missing"),
    [
        ([{"CPU": 2.0}], {"CPU": 2.0}, []),
        ([{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}], {"CPU": 4.0, "GPU": 1.0}, []),
        (
            [{"CPU": 2.0}, {"CPU": 2.0}],
            {"CPU": 4.0, "GPU": 1.0},
            ["CPU=4 on 2 of 2 nodes (the largest has 2)", "GPU=1 on 2 of 2 nodes (the largest has 0)"],
        ),
        (
            [{"CPU": 8.0}, {"CPU": 2.0, "GPU": 1.0}],
            {"CPU": 4.0, "GPU": 1.0},
            ["CPU=4 on 1 of 2 nodes (the largest has 8)", "GPU=1 on 1 of 2 nodes (the largest has 1)"],
        ),
    ],
    ids=["enough", "one node has enough", "more than any node has", "no node has both"],
)
def test_missing_resources_are_listed_per_node(
    nodes: list[dict[str, float]], wanted: dict[str, float], missing: list[str]
) -> None:
    assert list_missing(nodes, wanted) == missing
