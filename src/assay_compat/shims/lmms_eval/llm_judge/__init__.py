"""Shim for `lmms_eval.llm_judge`."""

from __future__ import annotations

from assay_compat.llm_judge.factory import (
    ProviderFactory,
    get_server,
)
from assay_compat.llm_judge.prompts import (
    JudgePromptBuilder,
    ResponseParser,
)
from assay_compat.llm_judge.protocol import (
    Request,
    Response,
    ServerConfig,
)
from assay_compat.llm_judge.server import (
    ServerInterface,
)

__all__ = [
    "JudgePromptBuilder",
    "ProviderFactory",
    "Request",
    "Response",
    "ResponseParser",
    "ServerConfig",
    "ServerInterface",
    "get_server",
]
