"""`lm_eval.tasks`: where scripts import `TaskManager` from. A file, not a folder: folders of that name hold tasks."""

from assay_compat.commands.script_api import TaskManager

__all__ = ["TaskManager"]
