"""Thinking budgets with vLLM's interface: an engine that keeps reasoning until its reasoning is ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Response
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.vllm.arguments import parse_arguments
from assay.models.vllm.engine import VllmEngine
from assay.models.vllm.request_processing import GenerationPreset, RequestProcessor

pytestmark = pytest.mark.torch

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}[{{ reasoning_effort }}]<think>"
REASONING = "the sky is blue and a cat sat on what upon time once "
ANSWER = "the answer is blue what"


class ReasoningEngine:
    """Speaks the interface of vLLM's `AsyncLLM`. It reasons without end, and answers when the prompt ends the reasoning."""

    errored = False

    def __init__(self, tokenizer: Any, max_length: int = 128) -> None:
        self.tokenizer = tokenizer
        self.model_config = SimpleNamespace(max_model_len=max_length)
        self.calls: list[tuple[str, Any]] = []

    async def generate(
        self, prompt: dict[str, Any], settings: Any, number: str, lora_request: Any = None
    ) -> AsyncIterator[Any]:
        tokens = prompt["prompt_token_ids"]
        if len(tokens) + settings.max_tokens > self.model_config.max_model_len:
            raise ValueError("the prompt and its answer are longer than the context length")
        text = self.tokenizer.decode(tokens)
        self.calls.append((text, settings))
        whole = ANSWER if "</think>" in text else REASONING * 20
        written = self.tokenizer.encode(whole, add_special_tokens=False)
        kept = written[: settings.max_tokens]
        answer = SimpleNamespace(
            text=self.tokenizer.decode(kept),
            token_ids=kept,
            logprobs=None,
            finish_reason="length" if len(kept) < len(written) else "stop",
        )
        yield SimpleNamespace(outputs=[answer], num_cached_tokens=0, prompt_token_ids=tokens, finished=True)


@pytest.fixture
def vllm_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that `VllmEngine` imports for a request."""
    modules: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.exceptions": {"EngineDeadError": type("EngineDeadError", (Exception,), {})},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


def ask(prompt: str = "on sky", *, max_length: int = 128, **settings: Any) -> tuple[Any, ReasoningEngine]:
    arguments = parse_arguments({"pretrained": str(tiny_checkpoint()), "chat_template": TEMPLATE})
    tokenizer = CheckpointTokenizer(arguments.to_tokenizer_arguments(), Checkpoint(str(tiny_checkpoint())))
    engine = ReasoningEngine(tokenizer.tokenizer, max_length)
    processor = RequestProcessor(
        VllmEngine(engine, SimpleNamespace, None), tokenizer, arguments, None, GenerationPreset()
    )
    request = Generate(
        task="t",
        document=0,
        prompt=Prompt((Message("user", (Text(prompt),)),), chat=True),
        settings=Settings({"max_gen_toks": 12, **settings}),
    )

    async def work() -> Any:
        (job,) = processor.plan_jobs([request])
        (outcome,) = await processor.run_job(job)  # type: ignore[arg-type]
        return outcome

    return asyncio.run(work()), engine


@pytest.mark.usefixtures("vllm_interface")
def test_reasoning_at_the_token_limit_has_no_answer() -> None:
    found, engine = ask(until=["blue"])
    assert isinstance(found, Response) and len(engine.calls) == 1
    assert (found.value, found.finish) == ("", "length")
    assert found.reasoning is not None and "blue" in found.reasoning
    assert found.usage is not None and found.usage.reasoning_tokens == found.usage.output_tokens == 12


@pytest.mark.usefixtures("vllm_interface")
def test_a_thinking_budget_ends_the_reasoning_and_the_answer_follows() -> None:
    found, engine = ask(until=["what"], thinking_budget=5)
    assert isinstance(found, Response)
    (_, first), (prompt, second) = engine.calls
    assert (first.max_tokens, second.max_tokens) == (5, 12)
    assert "what" not in first.stop
    assert found.reasoning is not None and REASONING.startswith(found.reasoning)
    assert prompt.endswith(f"<think>{found.reasoning}\n</think>\n\n")
    assert (found.value, found.finish) == ("the answer is blue ", "stop")
    assert found.usage is not None and 4 <= found.usage.reasoning_tokens <= 6


@pytest.mark.usefixtures("vllm_interface")
def test_a_long_prompt_leaves_room_for_the_budget_and_the_answer() -> None:
    found, _ = ask("the sky is blue " * 40, max_length=64, thinking_budget=20)
    assert isinstance(found, Response), found
    assert isinstance(found.value, str) and found.value and ANSWER.startswith(found.value)
    assert found.usage is not None and found.usage.truncated_tokens > 0


@pytest.mark.usefixtures("vllm_interface")
def test_the_chat_template_gets_the_reasoning_effort() -> None:
    _, engine = ask(reasoning_effort="high")
    assert engine.calls[0][0].endswith("on sky[high]<think>")
