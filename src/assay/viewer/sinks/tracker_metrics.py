"""Events as flat metric names and values, for trackers and collectors."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage

__all__ = ["build_final_metrics", "import_package", "build_progress_metrics"]


def build_progress_metrics(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a `progress` event: `run/done`, `run/documents_per_second`, `arc_easy/running_acc`, …"""
    numbers: dict[str, float] = {
        "run/done": facts["done"],
        "run/documents_per_second": facts["rate"],
        "run/failures": sum(facts["failures"].values()),
        "run/tokens_read": facts["tokens_read"],
        "run/tokens_written": facts["tokens_written"],
    }
    if facts.get("tokens_reasoning"):
        numbers["run/tokens_reasoning"] = facts["tokens_reasoning"]
    if facts["cost_usd"] is not None:
        numbers["run/cost_usd"] = facts["cost_usd"]
    for name, task in facts["tasks"].items():
        numbers[f"{name}/done"] = task["done"]
        if task["score"] is not None:
            numbers[f"{name}/running_{task['metric']}"] = task["score"]
    return numbers


def build_final_metrics(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the final scores: `arc_easy/acc`, `arc_easy/acc_stderr`; with the name of the filter if it has one."""
    numbers: dict[str, float] = {}
    for one in facts["numbers"]:
        name = one["metric"] if one["filter"] in ("", "none") else f"{one['metric']}-{one['filter']}"
        for suffix, value in (("", one["value"]), ("_stderr", one["stderr"])):
            if isinstance(value, (int, float)):
                numbers[f"{one['task']}/{name}{suffix}"] = float(value)
    return numbers


def import_package(module: str, name: str = "") -> Any:
    """Import an optional package.

    Raises:
        MissingPackage: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"the sink needs the package `{name or module}`: {error}",
            where="--sink",
            hint=f"pip install {name or module}",
        ) from None
