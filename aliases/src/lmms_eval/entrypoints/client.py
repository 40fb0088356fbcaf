"""`lmms_eval.entrypoints.client`: the clients of the evaluation server."""

from assay_compat.evaluation_server.client import AsyncEvalClient, EvalClient

__all__ = ["AsyncEvalClient", "EvalClient"]
