"""Shim for `lmms_eval.api.task`: the class Python tasks derive from."""

from __future__ import annotations

from assay_compat.class_task_config import TaskConfig
from assay_compat.lmms_eval_class_task import ConfigurableTask

__all__ = ["ConfigurableTask", "TaskConfig"]
