"""`lm_eval.evaluator`: the import location of `simple_evaluate` and `evaluate`."""

from assay_compat.commands.script_api import evaluate, simple_evaluate

__all__ = ["evaluate", "simple_evaluate"]
