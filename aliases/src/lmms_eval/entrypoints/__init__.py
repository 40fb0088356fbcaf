"""`lmms_eval.entrypoints`: the evaluation server of lmms-eval and its clients, run by Assay."""

from assay_compat.evaluation_server.client import AsyncEvalClient, EvalClient
from assay_compat.evaluation_server.http_server import launch_server
from assay_compat.evaluation_server.job_scheduler import JobScheduler
from assay_compat.evaluation_server.protocol import (
    EvaluateRequest,
    HealthResponse,
    JobInfo,
    JobStatus,
    JobSubmitResponse,
    MergeRequest,
    MergeResponse,
    QueueStatusResponse,
)
from assay_compat.evaluation_server.server_args import ServerArgs

__all__ = [
    "AsyncEvalClient",
    "EvalClient",
    "EvaluateRequest",
    "HealthResponse",
    "JobInfo",
    "JobScheduler",
    "JobStatus",
    "JobSubmitResponse",
    "MergeRequest",
    "MergeResponse",
    "QueueStatusResponse",
    "ServerArgs",
    "launch_server",
]
