"""The package name `lmms_eval`, implemented by Assay."""

from assay_compat.commands.script_api import simple_evaluate

__all__ = ["simple_evaluate"]
