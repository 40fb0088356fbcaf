"""`lm_eval.evaluator`: where scripts import `simple_evaluate` from."""

from assay_compat.commands.script_api import simple_evaluate

__all__ = ["simple_evaluate"]
