"""Stand-in for `lm_eval.api.task`: the classes Python tasks derive from."""

from __future__ import annotations

from assay_compat.class_bases import ConfigurableTask, Task
from assay_compat.class_config import TaskConfig

__all__ = ["ConfigurableTask", "Task", "TaskConfig"]
