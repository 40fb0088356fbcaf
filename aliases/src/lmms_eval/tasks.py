"""`lmms_eval.tasks`: the import location of `TaskManager` and `get_task_dict`. A file, because a folder of this name would contain tasks."""

from assay_compat.commands.script_api import TaskManager, get_task_dict

__all__ = ["TaskManager", "get_task_dict"]
