"""The name `lm_eval`, carried out by Assay."""

from assay_compat.commands.evaluating import simple_evaluate

__all__ = ["simple_evaluate"]
