"""Where else a run is told: services that draw curves, files other programs follow.

A sink has one method, `emit(event, facts)`, and may have `close()`. It is called in a thread of its own, so it may be slow;
what it raises is said once, and the run goes on without it. Events, in order:

| event | facts |
|---|---|
| `run started` | `run_id`, `folder`, `model`, `tasks` (name -> documents), `options` (without secrets) |
| `progress` | every few seconds: `seconds`, `done`, `total`, `rate`, `failures`, tokens, cost, and of each task its running score |
| `task ended` | `task`, `documents`, `metric`, `score`, `stderr`: when the last document of a task ended |
| `run ended` | `state` (finished, stopped, failed), `why`, `seconds`, `results` (as lm-eval writes them), `numbers`, `files` |
"""

from __future__ import annotations

from collections.abc import Callable

from assay.core.ports import Sink
from assay.core.registry import Registry

__all__ = ["SINKS"]

SINKS: Registry[Callable[..., Sink]] = Registry(
    "sink",
    builtin_modules=(
        "assay.viewer.sinks.hub",
        "assay.viewer.sinks.lines",
        "assay.viewer.sinks.mlflow",
        "assay.viewer.sinks.open_telemetry",
        "assay.viewer.sinks.wandb",
    ),
)
"""Everything `--sink` can name."""
