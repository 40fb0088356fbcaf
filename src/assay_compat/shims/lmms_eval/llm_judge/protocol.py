"""Shim for `lmms_eval.llm_judge.protocol`."""

from __future__ import annotations

from assay_compat.llm_judge.protocol import (
    DEFAULT_NUM_RETRIES,
    DEFAULT_RETRY_DELAY,
    Request,
    Response,
    ServerConfig,
)

__all__ = [
    "DEFAULT_NUM_RETRIES",
    "DEFAULT_RETRY_DELAY",
    "Request",
    "Response",
    "ServerConfig",
]
