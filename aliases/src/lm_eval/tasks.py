"""`lm_eval.tasks`: the import location of `TaskManager`. A file, because a folder of this name would contain tasks."""

from assay_compat.commands.script_api import TaskManager

__all__ = ["TaskManager"]
