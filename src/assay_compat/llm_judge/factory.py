"""Implementation of `lmms_eval.llm_judge.factory`: create a provider by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from assay_compat.llm_judge.calls import find_run_judge
from assay_compat.llm_judge.protocol import ServerConfig
from assay_compat.llm_judge.providers import (
    AssayProvider,
    AsyncAzureOpenAIProvider,
    AsyncOpenAIProvider,
    AzureOpenAIProvider,
    BedrockProvider,
    DummyProvider,
    LocalProvider,
    OpenAIProvider,
)
from assay_compat.llm_judge.server import ServerInterface

__all__ = ["ProviderFactory", "get_server"]

try:
    from dotenv import load_dotenv
except ImportError:
    pass
else:
    if Path(".env").is_file():
        load_dotenv(Path(".env"), override=False)


class ProviderFactory:
    """Providers by lmms-eval's names, plus `assay`."""

    _provider_classes: ClassVar[dict[str, type[ServerInterface]]] = {
        "openai": OpenAIProvider,
        "azure": AzureOpenAIProvider,
        "async_openai": AsyncOpenAIProvider,
        "async_azure": AsyncAzureOpenAIProvider,
        "bedrock": BedrockProvider,
        "local": LocalProvider,
        "dummy": DummyProvider,
        "assay": AssayProvider,
    }

    @classmethod
    def create_provider(
        cls, api_type: str | None = None, config: ServerConfig | None = None
    ) -> ServerInterface:
        if api_type is None:
            api_type = os.getenv("API_TYPE", "openai").lower()
        if api_type in cls._provider_classes:
            return cls._provider_classes[api_type](config=config)
        if find_run_judge(api_type) == api_type:
            server = AssayProvider(config=config)
            server.judge_name = api_type
            return server
        raise ValueError(
            f"unknown judge provider {api_type!r}; available: {', '.join(cls._provider_classes)}"
        )

    @classmethod
    def register_provider(cls, api_type: str, judge_class: type[ServerInterface]) -> None:
        if not issubclass(judge_class, ServerInterface):
            raise ValueError(f"{judge_class} is not a ServerInterface")
        cls._provider_classes[api_type] = judge_class


def get_server(server_name: str | None = None, config: ServerConfig | None = None) -> ServerInterface:
    """Return a judge by the name of its provider."""
    return ProviderFactory.create_provider(api_type=server_name, config=config)
