"""`lmms_eval.evaluator`: the import location of `simple_evaluate`."""

from assay_compat.commands.script_api import simple_evaluate

__all__ = ["simple_evaluate"]
