"""What a replica takes of its machine: as the user says, or as its model needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from assay.core.errors import BadOption

__all__ = ["actor_options", "check_resources", "missing_from", "processors_for", "wanted_resources"]

_NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
_NO_GPU = ("embedded", "dummy", "ocr", "speech", "moonshine", "smollm2")
"""Models that compute on the processor whatever there is."""


def check_resources(given: Mapping[str, Any]) -> dict[str, float]:
    """The resources the user names, as numbers, under Ray's names.

    >>> check_resources({"gpu": 1, "cpu": "4"})
    {'GPU': 1.0, 'CPU': 4.0}

    Raises:
        BadOption: One of them is not an amount.
    """
    found = {}
    for name, amount in given.items():
        try:
            number = float(amount)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(amount, bool) or not 0 <= number < float("inf"):
            raise BadOption(
                f"`{name}={amount}` is not an amount",
                where="--replica_resources",
                hint="gpu=1,cpu=4,memory=8e9 (bytes), or a name your cluster knows",
            )
        found[_NAMES.get(name.lower(), name)] = number
    return found


def wanted_resources(
    given: Mapping[str, Any],
    model: str,
    arguments: Mapping[str, Any],
    device: str | None,
    cluster: Mapping[str, float],
) -> dict[str, float]:
    """What one replica takes.

    Without a word from the user: a processor, and where the cluster has GPUs as many as the model is spread over
    (`tensor_parallel_size` times `pipeline_parallel_size`).

    >>> wanted_resources({}, "vllm", {"tensor_parallel_size": 2, "pipeline_parallel_size": "2"}, None, {"GPU": 8})
    {'CPU': 1.0, 'GPU': 4.0}
    >>> wanted_resources({}, "embedded", {}, None, {"GPU": 8})
    {'CPU': 1.0}
    """
    if given:
        return check_resources(given)
    wanted = {"CPU": 1.0}
    device = str(device or arguments.get("device") or "")
    if cluster.get("GPU") and model not in _NO_GPU and not device.startswith("cpu"):
        wanted["GPU"] = float(_parallel(arguments, "tensor") * _parallel(arguments, "pipeline"))
    return wanted


def processors_for(replicas: int, given: Mapping[str, Any]) -> int:
    """How many processors a Ray of our own has to offer for some replicas.

    >>> processors_for(3, {}), processors_for(8, {"cpu": 0}), processors_for(1, {"gpu": 1})
    (3, 1, 1)
    """
    resources = check_resources(given)
    return max(1, math.ceil(replicas * resources.get("CPU", 0.0 if resources else 1.0)))


def _parallel(arguments: Mapping[str, Any], kind: str) -> int:
    try:
        return max(1, int(arguments.get(f"{kind}_parallel_size", 1)))
    except (TypeError, ValueError):
        return 1  # the adapter says what is wrong with it


def missing_from(cluster: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """What not even one replica can have of the whole cluster.

    >>> missing_from({"CPU": 2.0}, {"CPU": 1.0, "GPU": 1.0})
    ['GPU=1 (it has 0)']
    """
    return [
        f"{name}={amount:g} (it has {cluster.get(name, 0.0):g})"
        for name, amount in wanted.items()
        if amount > cluster.get(name, 0.0)
    ]


def actor_options(wanted: Mapping[str, float]) -> dict[str, Any]:
    """The same in Ray's words."""
    others = {name: amount for name, amount in wanted.items() if name not in _NAMES.values()}
    options: dict[str, Any] = {"num_cpus": wanted.get("CPU", 0.0), "num_gpus": wanted.get("GPU", 0.0)}
    if "memory" in wanted:
        options["memory"] = int(wanted["memory"])
    if others:
        options["resources"] = others
    return options
