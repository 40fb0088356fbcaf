"""Shim for `lmms_eval.tasks`: the task index. Its search path contains the task folders."""

from __future__ import annotations

from typing import Any

_NAMES = ("TaskManager", "get_task_dict")


def __getattr__(name: str) -> Any:  # helper files import modules below this one; few use these names
    if name not in _NAMES:
        raise AttributeError(name)
    from assay_compat.commands import script_api

    return getattr(script_api, name)
