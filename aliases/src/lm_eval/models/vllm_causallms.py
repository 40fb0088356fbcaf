"""`lm_eval.models.vllm_causallms`: the import location of `VLLM`."""

from assay_compat.commands.model_references import VLLM

__all__ = ["VLLM"]
