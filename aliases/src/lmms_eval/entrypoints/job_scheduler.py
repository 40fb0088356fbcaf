"""`lmms_eval.entrypoints.job_scheduler`: the queue of the evaluation server."""

from assay_compat.evaluation_server.job_scheduler import JobScheduler

__all__ = ["JobScheduler"]
