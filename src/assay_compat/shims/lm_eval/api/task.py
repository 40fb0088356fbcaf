"""Shim for `lm_eval.api.task`: the classes Python tasks derive from."""

from __future__ import annotations

from assay_compat.class_task_config import TaskConfig
from assay_compat.lm_eval_task_bases import ConfigurableTask, Task

__all__ = ["ConfigurableTask", "Task", "TaskConfig"]
