"""What services that draw curves are told: flat names and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from assay.core.errors import MissingPackage

__all__ = ["final_numbers", "package", "progress_numbers"]


def progress_numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """The counters of a `progress` event: `run/done`, `run/documents_per_second`, `arc_easy/acc`, …"""
    numbers: dict[str, float] = {
        "run/done": facts["done"],
        "run/documents_per_second": facts["rate"],
        "run/failures": sum(facts["failures"].values()),
        "run/tokens_read": facts["tokens_read"],
        "run/tokens_written": facts["tokens_written"],
    }
    if facts["cost_usd"] is not None:
        numbers["run/cost_usd"] = facts["cost_usd"]
    for name, task in facts["tasks"].items():
        numbers[f"{name}/done"] = task["done"]
        if task["score"] is not None:
            numbers[f"{name}/running_{task['metric']}"] = task["score"]
    return numbers


def final_numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """The results: `arc_easy/acc`, `arc_easy/acc_stderr`; with the filter where it has a name."""
    numbers: dict[str, float] = {}
    for one in facts["numbers"]:
        name = one["metric"] if one["filter"] in ("", "none") else f"{one['metric']}-{one['filter']}"
        for suffix, value in (("", one["value"]), ("_stderr", one["stderr"])):
            if isinstance(value, (int, float)):
                numbers[f"{one['task']}/{name}{suffix}"] = float(value)
    return numbers


def package(module: str, name: str = "") -> Any:
    """An optional package.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"the sink needs the package `{name or module}`: {error}",
            where="--sink",
            hint=f"pip install {name or module}",
        ) from None
