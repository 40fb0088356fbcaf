"""CPUs, GPUs and memory of a replica: set by the user, or derived from its model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.errors import InvalidOption

__all__ = ["build_actor_options", "check_resources", "compute_resources", "count_cpus", "list_missing"]

_NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
_NO_GPU = ("embedded", "dummy", "ocr", "speech", "moonshine", "smollm2")
"""Models that never use a GPU."""


def check_resources(given: Mapping[str, Any]) -> dict[str, float]:
    """Return the user's resources as numbers, with Ray's names.

    >>> check_resources({"gpu": 1, "cpu": "4"})
    {'GPU': 1.0, 'CPU': 4.0}

    Raises:
        InvalidOption: A value is not an amount.
    """
    found = {}
    for name, amount in given.items():
        try:
            number = float(amount)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(amount, bool) or not 0 <= number < float("inf"):
            raise InvalidOption(
                f"invalid amount: `{name}={amount}`",
                where="--replica_resources",
                hint="use gpu=1,cpu=4,memory=8e9 (bytes), or a custom resource of your cluster",
            )
        found[_NAMES.get(name.lower(), name)] = number
    return found


def compute_resources(
    given: Mapping[str, Any],
    model: str,
    arguments: Mapping[str, Any],
    device: str | None,
    cluster: Mapping[str, float],
) -> dict[str, float]:
    """Return the resources of one replica.

    The default is one CPU and, if the cluster has GPUs, as many GPUs as the model uses (`tensor_parallel_size` times
    `pipeline_parallel_size`).

    >>> compute_resources({}, "vllm", {"tensor_parallel_size": 2, "pipeline_parallel_size": "2"}, None, {"GPU": 8})
    {'CPU': 1.0, 'GPU': 4.0}
    >>> compute_resources({}, "embedded", {}, None, {"GPU": 8})
    {'CPU': 1.0}
    """
    if given:
        return check_resources(given)
    wanted = {"CPU": 1.0}
    device = str(device or arguments.get("device") or "")
    if cluster.get("GPU") and model not in _NO_GPU and not device.startswith("cpu"):
        wanted["GPU"] = float(
            _read_parallel_size(arguments, "tensor") * _read_parallel_size(arguments, "pipeline")
        )
    return wanted


def count_cpus(replicas: int, given: Mapping[str, Any]) -> int:
    """Return the number of CPUs that a local cluster needs for these replicas.

    >>> count_cpus(3, {}), count_cpus(8, {"cpu": 0}), count_cpus(1, {"gpu": 1})
    (3, 1, 1)
    """
    resources = check_resources(given)
    return max(1, math.ceil(replicas * resources.get("CPU", 0.0 if resources else 1.0)))


def _read_parallel_size(arguments: Mapping[str, Any], kind: str) -> int:
    try:
        return max(1, int(arguments.get(f"{kind}_parallel_size", 1)))
    except (TypeError, ValueError):
        return 1  # the adapter reports the error


def list_missing(nodes: Sequence[Mapping[str, float]], wanted: Mapping[str, float]) -> list[str]:
    """List the resources that nodes lack, if no node can run a replica: a replica runs on one node.

    >>> list_missing([{"CPU": 2.0}, {"CPU": 8.0}], {"CPU": 4.0, "GPU": 1.0})
    ['CPU=4 on 1 of 2 nodes (the largest has 8)', 'GPU=1 on 2 of 2 nodes (the largest has 0)']
    >>> list_missing([{"CPU": 2.0}, {"CPU": 8.0}], {"CPU": 4.0})
    []
    """
    lacking = [{name for name, amount in wanted.items() if amount > node.get(name, 0.0)} for node in nodes]
    if not all(lacking):
        return []
    return [
        f"{name}={amount:g} on {count} of {len(nodes)} nodes "
        f"(the largest has {max(node.get(name, 0.0) for node in nodes):g})"
        for name, amount in wanted.items()
        if (count := sum(name in names for names in lacking))
    ]


def build_actor_options(wanted: Mapping[str, float]) -> dict[str, Any]:
    """Return the resources as options of a Ray actor."""
    others = {name: amount for name, amount in wanted.items() if name not in _NAMES.values()}
    options: dict[str, Any] = {"num_cpus": wanted.get("CPU", 0.0), "num_gpus": wanted.get("GPU", 0.0)}
    if "memory" in wanted:
        options["memory"] = int(wanted["memory"])
    if others:
        options["resources"] = others
    return options
