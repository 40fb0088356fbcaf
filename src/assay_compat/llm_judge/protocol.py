"""Implementation of `lmms_eval.llm_judge.protocol`: requests to and responses from a judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEFAULT_NUM_RETRIES", "DEFAULT_RETRY_DELAY", "Request", "Response", "ServerConfig"]

DEFAULT_NUM_RETRIES = 5
DEFAULT_RETRY_DELAY = 10


@dataclass
class ServerConfig:
    """The judge model and its settings."""

    model_name: str
    temperature: float = 0.0
    max_tokens: int = 1024
    top_p: float | None = None
    timeout: int = 60
    num_retries: int = DEFAULT_NUM_RETRIES
    retry_delay: float = DEFAULT_RETRY_DELAY
    max_concurrent: int = 10
    system_prompt: str | None = None
    response_format: str | None = None
    judge_type: str = "general"
    output_format: str | None = None
    score_range: tuple[float, float] | None = None
    evaluation_criteria: dict[str, Any] | None = None


@dataclass
class Request:
    """A request to a judge."""

    messages: list[dict[str, Any]]
    images: list[Any] | None = None
    config: ServerConfig | None = None
    question: str | None = None
    answer: str | None = None
    prediction: str | None = None
    context: str | None = None
    options: list[str] | None = None
    response1: str | None = None
    response2: str | None = None
    custom_prompt: str | None = None
    prompt_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Response:
    """The response of a judge."""

    content: str
    model_used: str
    usage: Any = None
    raw_response: Any = None
    parsed_result: Any = None
    success: bool = True
    error_message: str | None = None
