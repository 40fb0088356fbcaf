"""The contract of the `Model` port, over the remote adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.models.remote.embedded_server import EmbeddedServer

from assay.core.ports import SupportsPreview, SupportsProbing
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.openai import OpenAIModel
from assay.testing import MODEL_CHECKS

ADAPTERS: dict[str, Callable[[str], Any]] = {
    "openai": lambda url: OpenAIModel(model="embedded", base_url=url, retry_backoff_s=0.01),
    "openai, responses": lambda url: OpenAIModel(model="embedded", base_url=url, api="responses"),
    "openai-completions": lambda url: CompletionsModel(model="embedded", base_url=url),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_every_remote_adapter_fulfils_the_contract(
    check: Callable[..., None], adapter: str, server: EmbeddedServer
) -> None:
    check(lambda: ADAPTERS[adapter](server.url))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_remote_adapters_can_be_probed(adapter: str) -> None:
    model = ADAPTERS[adapter]("http://localhost:1/v1")
    assert isinstance(model, SupportsProbing) and isinstance(model, SupportsPreview)
