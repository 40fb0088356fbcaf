"""SmolLM2 with a chat template that renders tools, and a sample of BFCL, for tests with servers that parse tool calls."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.builtin_tasks.bfcl.utils import REPOSITORY
from assay.models.smollm2 import find_weights

__all__ = ["TOOL_TEMPLATE", "find_missing_packages", "make_tool_checkpoint", "run_bfcl_sample"]

TOOL_TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\nYou may call functions. They are described in <tools>:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nFor each call, answer with:\\n<tool_call>\\n{"name": "function", "arguments": {"argument": "value"}}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""ChatML with the tools in the form of Hermes, which llama.cpp, vLLM and Assay know. SmolLM2's own template has none."""

_FUNCTION = {
    "name": "triangle_area",
    "description": "Compute the area of a triangle.",
    "parameters": {
        "type": "dict",
        "properties": {"base": {"type": "integer"}, "height": {"type": "integer"}},
        "required": ["base", "height"],
    },
}
_QUESTIONS = {
    "simple_python": ["What is the area of a triangle with base 10 and height 5?", "And with base 3, height 4?"],
    "irrelevance": ["Who wrote Hamlet?"],
}  # fmt: skip


def find_missing_packages(*names: str) -> str:
    """Return the packages that are not installed, separated by commas."""
    return ", ".join(name for name in names if find_spec(name) is None)


def make_tool_checkpoint(folder: Path) -> Path:
    """Write SmolLM2 as a checkpoint of transformers, from its GGUF file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = find_weights()
    source: dict[str, Any] = {
        "pretrained_model_name_or_path": str(weights.parent),
        "gguf_file": weights.name,
    }
    loaded = AutoModelForCausalLM.from_pretrained(**source)
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config  # the weights are plain tensors now
    model = AutoModelForCausalLM.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.chat_template = TOOL_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def run_bfcl_sample(folder: Path, model: str, base_url: str) -> None:
    """Run a sample of two categories and check that the server got the tools, and that every document was scored."""
    hub = folder / "hub" / REPOSITORY
    (hub / "possible_answer").mkdir(parents=True)
    for category, questions in _QUESTIONS.items():
        rows = [
            {
                "id": f"{category}_{at}",
                "question": [[{"role": "user", "content": text}]],
                "function": [_FUNCTION],
            }
            for at, text in enumerate(questions)
        ]
        _write_lines(hub / f"BFCL_v4_{category}.json", rows)
    answers = [{"base": [10], "height": [5]}, {"base": [3], "height": [4]}]
    _write_lines(
        hub / "possible_answer" / "BFCL_v4_simple_python.json",
        [
            {"id": f"simple_python_{at}", "ground_truth": [{"triangle_area": one}]}
            for at, one in enumerate(answers)
        ],
    )
    run = assay.run(
        model="openai",
        model_args={"model": model, "base_url": base_url, "num_concurrent": 1, "timeout": 600},
        tasks=["bfcl_simple_python", "bfcl_irrelevance"],
        data_root=str(folder / "hub"),
        gen_kwargs={"max_gen_toks": 32},
        output_path=str(folder / "out"),
    )
    assert {(one.task, one.scored, one.failed) for one in run.estimates} == {
        ("bfcl_simple_python", 2, 0),
        ("bfcl_irrelevance", 1, 0),
    }
    for record in run.records("bfcl_simple_python"):
        (request,) = record["requests"]
        assert [tool["name"] for tool in request["tools"]["tools"]] == ["triangle_area"]
        assert not request["tools"].get("syntax"), "the server supports tools"
        calls = request.get("tool_calls") or ()
        right = any(json.loads(call["arguments"]) == _get_arguments(record) for call in calls)
        assert any(one["metric"] == "acc" and one["value"] == float(right) for one in record["verdicts"])


def _get_arguments(record: dict[str, Any]) -> dict[str, int]:
    number = int(str(record["fields"]["id"]).rpartition("_")[2])
    return [{"base": 10, "height": 5}, {"base": 3, "height": 4}][number]


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def skip_without(*names: str) -> pytest.MarkDecorator:
    """Skip a test if packages are not installed."""
    missing = find_missing_packages(*names)
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")
