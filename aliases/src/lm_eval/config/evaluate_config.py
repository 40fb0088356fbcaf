"""`lm_eval.config.evaluate_config`: the import location of `EvaluatorConfig`."""

from assay_compat.commands.evaluator_config import EvaluatorConfig

__all__ = ["EvaluatorConfig"]
