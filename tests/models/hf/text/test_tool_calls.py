"""Tools in the chat template of a checkpoint, and calls in its answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.models.remote.asking import chat, generate

pytest.importorskip("transformers")
pytest.importorskip("torch")

from tests.models.hf.tiny_checkpoints import TEMPLATE, make_tokenizer

from assay.core.records.tools import Tool, ToolCall, Tools
from assay.models.hf.adapter import HfModel
from assay.models.hf.arguments import parse_arguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.hf.sampling import SamplingSettings
from assay.models.hf.text.jobs import GenerationJob, decode_response

pytestmark = pytest.mark.torch

TOOLS = Tools(
    tools=(Tool("area", "Area of a square.", {"type": "object", "properties": {"base": {"type": "number"}}}),)
)
WITH_TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools> Write <tool_call>.\n{% endif %}" + TEMPLATE


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and a config, without weights."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = make_tokenizer()
    tokenizer.chat_template = WITH_TOOLS
    tokenizer.save_pretrained(folder)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_template_decides_whether_tools_are_native(checkpoint: Path, tmp_path: Path) -> None:
    assert "tools" in HfModel(pretrained=str(checkpoint)).traits.abilities
    assert "tools" not in HfModel(pretrained=str(checkpoint), chat_template=TEMPLATE).traits.abilities


def test_the_prompt_contains_the_tools_unless_none_may_be_called(checkpoint: Path) -> None:
    model = HfModel(pretrained=str(checkpoint))
    request = replace(generate(chat("Area?")), tools=TOOLS)
    shown = model.preview(request)
    assert '"name": "area"' in shown and shown.endswith("[assistant]")
    assert "<tools>" not in model.preview(replace(request, tools=replace(TOOLS, choice="none")))
    assert "<tools>" not in model.preview(replace(request, tools=replace(TOOLS, syntax="json")))


def test_calls_are_separated_from_the_answer(checkpoint: Path) -> None:
    tokenizer = CheckpointTokenizer(
        parse_arguments({"pretrained": str(checkpoint)}, name="hf"), Checkpoint(str(checkpoint), "main", "")
    )
    text = 'Look: <tool_call>{"name": "area", "arguments": {"base": 2}}</tool_call>'
    (tokens,) = tokenizer.encode([text], False)

    def decode(tools: Tools | None) -> tuple[str, tuple[ToolCall, ...]]:
        request = replace(generate(chat("Area?")), tools=tools)
        job = GenerationJob(
            tokens=[1], requests=[request], sampling=SamplingSettings(), limit=99, stops=("</s>",)
        )
        found, calls = decode_response([*tokens, 1], job, tokenizer, None)
        return found.answer, calls

    assert decode(TOOLS) == ("Look:", (ToolCall("area", '{"base": 2}'),))
    assert decode(None) == (text, ())
