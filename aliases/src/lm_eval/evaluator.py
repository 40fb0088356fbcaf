"""`lm_eval.evaluator`: where scripts import `simple_evaluate` from."""

from assay_compat.commands.evaluating import simple_evaluate

__all__ = ["simple_evaluate"]
