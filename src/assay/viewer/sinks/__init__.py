"""Sinks report the progress and the results of a run to external trackers, collectors and files.

A sink has a method `emit(event, facts)` and optionally `close()`. It is called in a separate thread, so it may be slow. If it
raises an exception, Assay logs a warning and stops calling it. Events, in order:

| event | facts |
|---|---|
| `run started` | `run_id`, `folder`, `model`, `tasks` (name -> documents), `options` (without secrets) |
| `progress` | every few seconds: `seconds`, `done`, `total`, `rate`, `failures`, tokens, cost, and the running score of each task |
| `task ended` | `task`, `documents`, `metric`, `score`, `stderr`, after the last document of a task |
| `run ended` | `state` (finished, stopped, failed), `why`, `seconds`, `results` (in lm-eval's format), `numbers`, `outcomes` |
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
        "assay.viewer.sinks.jsonl",
        "assay.viewer.sinks.open_telemetry",
    ),
)
"""The sinks for `--sink`."""

SINKS.add_plugin("assay-plugin-trackers", "mlflow", "trackio", "wandb")
