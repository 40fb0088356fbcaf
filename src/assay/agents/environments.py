"""Environments that a task file can name instead of bringing a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.core.registry import Registry

__all__ = ["ENVIRONMENTS"]

ENVIRONMENTS: Registry[Callable[..., Any]] = Registry("environment")
"""Each is a class that is called with an `EnvironmentContext`."""

ENVIRONMENTS.add_lazy("sandbox", "assay.agents.sandbox_environment:SandboxEnvironment")
ENVIRONMENTS.add_lazy("tau_bench", "assay.agents.tau_bench:TauBenchEnvironment")
