"""Models and tokenizers that a script has loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.hf_requests import ask, chat, generate, likelihood, rolling
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.errors import InvalidOption
from assay.core.records.responses import Failure, LogProbability, Response
from assay.models.hf import HfModel
from assay.models.hf.loading.loaded_objects import identify_model

pytestmark = pytest.mark.torch

REQUESTS = [
    likelihood("the sky is", " blue"), likelihood("the sky is", " what"), rolling("the cat sat on"),
    generate("once upon a"), generate(chat(("user", "what is the answer"))),
]  # fmt: skip


def answer(model: HfModel | None, requests: Any, kind: str = "llama") -> list[Any]:
    """Return the outcomes of a model, by default the one that the files of `kind` contain."""
    return ask(tiny_checkpoint(kind), requests, model=model)


def load(kind: str = "llama") -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    folder = tiny_checkpoint(kind)
    loader = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    return loader.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def identify(model: HfModel) -> Mapping[str, str]:
    return asyncio.run(model.identify())


def read_values(outcomes: Any) -> list[Any]:
    found = [one.value for one in outcomes if isinstance(one, Response)]
    assert len(found) == len(outcomes), outcomes
    return [round(one.total, 4) if isinstance(one, LogProbability) else one for one in found]


class Module(torch.nn.Module):  # type: ignore[misc]
    """What an adapter of another library offers: token ids in, logits out."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids: Any) -> Any:
        return self.inner(input_ids)


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_loaded_model_answers_like_its_files(kind: str) -> None:
    model, tokenizer = load(kind)
    requests = REQUESTS[:4] if kind == "t5" else REQUESTS
    expected = read_values(answer(None, requests, kind))
    assert read_values(answer(HfModel(pretrained=model, tokenizer=tokenizer), requests)) == expected
    assert read_values(answer(HfModel(pretrained=model), requests)) == expected  # the tokenizer of its folder
    named = HfModel(pretrained=str(tiny_checkpoint(kind)), tokenizer=tokenizer)
    assert read_values(answer(named, requests)) == expected


def test_loaded_model_is_not_changed_and_can_be_trained_afterwards() -> None:
    model, tokenizer = load()
    layers = [(name, id(one), type(one)) for name, one in model.named_modules()]
    attention = model.config._attn_implementation
    answer(HfModel(pretrained=model, tokenizer=tokenizer), REQUESTS)
    assert [(name, id(one), type(one)) for name, one in model.named_modules()] == layers
    assert model.config._attn_implementation == attention
    model.train()(torch.tensor([[4, 5, 6]]), labels=torch.tensor([[4, 5, 6]])).loss.backward()


def test_module_outside_transformers_answers_and_cannot_generate() -> None:
    inner, tokenizer = load()
    model = HfModel(pretrained=Module(inner), tokenizer=tokenizer)
    *scored, generated = answer(model, REQUESTS[:4])
    assert read_values(scored) == read_values(answer(None, REQUESTS[:3]))
    assert isinstance(generated, Failure) and "Module has no method `generate`" in generated.message


def test_identity_follows_the_content() -> None:
    model, tokenizer = load()
    first = identify(HfModel(pretrained=model, tokenizer=tokenizer))
    assert first == identify(HfModel(pretrained=load()[0], tokenizer=load()[1]))
    assert first["dtype"] == "float32"
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    assert identify(HfModel(pretrained=model, tokenizer=tokenizer)) != first
    changed = load()[1]
    changed.chat_template = "{{ messages }}"
    assert identify(HfModel(pretrained=load()[0], tokenizer=changed)) != first


@pytest.mark.parametrize("how", ["class", "hook", "method"])
def test_model_with_unknown_code_never_counts_as_another_one(how: str) -> None:
    def change(model: Any) -> Any:
        if how == "class":
            return Module(model)
        if how == "hook":
            model.lm_head.register_forward_hook(lambda module, inputs, output: output * 2)
        else:
            model.lm_head.forward = lambda hidden: hidden
        return model

    assert "object" not in identify_model(load()[0])
    first, second = (identify_model(change(load()[0])) for _ in range(2))
    assert first["object"] != second["object"]
    assert first["weights_sha256"] == second["weights_sha256"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"pretrained": object()}, "a name, a folder or a loaded model, not object"),
        ({"peft": "adapter"}, "`peft` has no effect on a loaded model"),
        ({"load_in_8bit": True}, "`load_in_8bit` has no effect on a loaded model"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        HfModel(**{"pretrained": load()[0], **arguments})


def test_model_without_a_name_needs_a_tokenizer() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9
    )
    with pytest.raises(InvalidOption, match="the loaded model has no tokenizer"):
        HfModel(pretrained=LlamaForCausalLM(config))
