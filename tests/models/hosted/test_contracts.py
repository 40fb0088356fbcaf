"""The contract of the `Model` port over the hosted adapters, one by one and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.models.hosted.services import KEY, Anthropic, Gemini, OpenAIBatches, Service, serving

from assay.models import make_model
from assay.testing import MODEL_CHECKS

ADAPTERS: dict[str, tuple[Callable[[], Service], str, str, bool]] = {
    "anthropic": (Anthropic, "anthropic", "/v1", False),
    "gemini": (Gemini, "gemini", "/v1beta", False),
    "anthropic in batches": (Anthropic, "anthropic", "/v1", True),
    "openai in batches": (OpenAIBatches, "openai", "/v1", True),
}


@pytest.fixture(params=ADAPTERS)
def factory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Any]]:
    make, name, path, batched = ADAPTERS[request.param]
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    with serving(make()) as service:
        arguments: dict[str, Any] = {"model": "some-model", "base_url": service.url + path}
        if batched:
            arguments["poll_s"] = 0.02
        yield lambda: make_model(name, arguments, batch_api=batched or None)


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_every_hosted_adapter_fulfils_the_contract(
    check: Callable[..., None], factory: Callable[[], Any]
) -> None:
    check(factory)
