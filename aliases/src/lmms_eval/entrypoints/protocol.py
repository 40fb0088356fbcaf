"""`lmms_eval.entrypoints.protocol`: requests and responses of the evaluation server."""

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

__all__ = [
    "EvaluateRequest",
    "HealthResponse",
    "JobInfo",
    "JobStatus",
    "JobSubmitResponse",
    "MergeRequest",
    "MergeResponse",
    "QueueStatusResponse",
]
