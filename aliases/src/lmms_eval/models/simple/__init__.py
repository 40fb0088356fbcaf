"""`lmms_eval.models.simple`: a module for each model name of lmms-eval that Assay accepts."""

from assay_compat.commands.model_references import register_model_modules

register_model_modules(__name__)
