"""`lmms_eval.entrypoints.server_args`: address and limits of the evaluation server."""

from assay_compat.evaluation_server.server_args import ServerArgs

__all__ = ["ServerArgs"]
