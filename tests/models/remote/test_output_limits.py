"""The largest number of tokens of a call."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.models import make_model
from assay.models.remote.options import Options
from assay.models.remote.output_limits import compute_output_limit


@pytest.mark.parametrize(
    ("settings", "extra", "limit"),
    [
        pytest.param({}, {}, 256, id="default"),
        pytest.param({"max_gen_toks": 40}, {}, 40, id="task"),
        pytest.param({"max_gen_toks": 40}, {"max_tokens": 4000}, 4000, id="extra_body raises it"),
        pytest.param({"max_gen_toks": 40}, {"max_completion_tokens": 4000}, 4000, id="another name"),
        pytest.param({}, {"max_tokens": None}, None, id="extra_body removes it"),
        pytest.param({}, {"thinking": {"type": "enabled", "budget_tokens": 8000}}, 8256, id="thinking"),
        pytest.param({}, {"chat_template_kwargs": {"thinking_budget": 500}}, 756, id="template"),
        pytest.param({}, {"reasoning": {"max_tokens": 2000}}, 2256, id="reasoning"),
        pytest.param({"max_gen_toks": 10}, {"n": 4}, 40, id="several answers"),
        pytest.param({}, {"generationConfig": {"topK": 1}}, None, id="replaced config"),
        pytest.param({}, {"generationConfig": {"maxOutputTokens": 900}}, 900, id="gemini"),
        pytest.param({"thinking_budget": 1000}, {}, 1256, id="gen_kwargs"),
    ],
)
def test_the_limit_includes_extra_fields_and_reasoning(
    settings: dict[str, Any], extra: dict[str, Any], limit: int | None
) -> None:
    assert compute_output_limit(Settings(settings), Options(model="m", extra_body=extra)) == limit


@pytest.mark.parametrize(
    ("name", "arguments", "limit"),
    [
        ("anthropic", {"model": "m", "thinking_budget": 16000}, 16100),
        ("gemini", {"model": "m", "thinking_budget": 2000}, 2100),
        ("openai", {"model": "m", "extra_body": {"max_completion_tokens": 9000}}, 9000),
        ("openai-completions", {"model": "m", "base_url": "http://127.0.0.1:1/v1"}, 100),
    ],
)
def test_models_report_their_limit(name: str, arguments: dict[str, Any], limit: int) -> None:
    request = Generate(
        task="t", document=0, prompt=Prompt.of_text("x"), settings=Settings({"max_gen_toks": 100})
    )
    model: Any = make_model(name, arguments)
    assert model.find_output_limit(request) == limit
