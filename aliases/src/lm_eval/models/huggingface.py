"""`lm_eval.models.huggingface`: the import location of `HFLM`."""

from assay_compat.commands.model_references import HFLM

__all__ = ["HFLM"]
