"""Answers equal those of transformers for any batch; stop strings are exact; repeats share their prompt."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.hf_requests import ask, generate
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.records.requests import Generate
from assay.core.records.responses import Failure, Outcome, Response
from assay.models.hf import HfModel

pytestmark = pytest.mark.torch

SHOTS = "Question: what is the answer? Answer: blue\n\n" * 3
PROMPTS = [f"{SHOTS}Question: {what}" for what in ("the cat", "sky is what", "a", "once upon a time the")] + [
    "is"
]


def texts(outcomes: list[Outcome]) -> list[str]:
    assert all(isinstance(one, Response) for one in outcomes), outcomes
    return [str(one.value) for one in outcomes if isinstance(one, Response)]


def reference(kind: str, prompt: str, **options: Any) -> str:
    """Return the answer of transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny_checkpoint(kind)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    output = model.generate(**inputs, do_sample=False, max_new_tokens=12, pad_token_id=2, **options)
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_greedy_answers_equal_transformers_for_any_batch_size(kind: str) -> None:
    requests = [generate(prompt) for prompt in PROMPTS]
    expected = [reference(kind, prompt) for prompt in PROMPTS]
    for batch_size in (1, 2, 4, "auto"):
        assert texts(ask(tiny_checkpoint(kind), requests, batch_size=batch_size)) == expected


def test_finished_rows_are_replaced() -> None:
    lengths = [1, 12, 3, 7, 2, 12, 5]
    requests = [generate(PROMPTS[at % 5], max_gen_toks=length) for at, length in enumerate(lengths)]
    found = ask(tiny_checkpoint(), requests, batch_size=3)
    alone = [ask(tiny_checkpoint(), [request])[0] for request in requests]
    assert texts(found) == texts(alone)
    assert [one.usage.output_tokens for one in found if isinstance(one, Response) and one.usage] == lengths


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_stop_string_across_tokens_ends_the_answer(kind: str) -> None:
    whole = texts(ask(tiny_checkpoint(kind), [generate(PROMPTS[0])]))[0]
    for start in range(1, min(len(whole) - 3, 8)):
        stop = whole[start : start + 3]
        (outcome,) = ask(tiny_checkpoint(kind), [generate(PROMPTS[0], until=[stop])])
        assert isinstance(outcome, Response)
        assert outcome.value == whole[: whole.index(stop)]
        assert outcome.finish == "stop"


def test_an_end_token_ends_the_answer() -> None:
    found = ask(tiny_checkpoint(), [generate(prompt, max_gen_toks=200) for prompt in PROMPTS], batch_size=4)
    ended = [one for one in found if isinstance(one, Response) and one.finish == "stop"]
    assert ended
    assert all("</s>" not in str(one.value) for one in ended)


def test_greedy_repeats_are_generated_once_and_sampled_ones_share_their_prompt() -> None:
    passes: list[tuple[int, int]] = []

    def count_pass(layers: Any, arguments: Any, inputs: Any) -> None:
        passes.append(tuple(inputs["input_ids"].shape))

    def generate_repeats(**settings: Any) -> list[str]:
        model = HfModel(pretrained=str(tiny_checkpoint()), batch_size=8)
        backend: Any = model.backend
        backend.load()
        backend.engine.model.base_model.register_forward_pre_hook(count_pass, with_kwargs=True)
        passes.clear()
        requests = [generate(PROMPTS[0], repeat=repeat, **settings) for repeat in range(6)]
        return texts(ask(tiny_checkpoint(), requests, model=model))

    assert len(set(generate_repeats())) == 1
    assert passes[1:] == [(1, 1)] * 11  # twelve tokens: the first from the prompt, then one row, step by step
    assert len(set(generate_repeats(do_sample=True, temperature=1.0))) > 1
    assert passes[0][1] > 30 and all(columns == 1 for _, columns in passes[1:])


def test_sampled_answers_are_reproducible_and_independent_of_the_batch() -> None:
    requests = [
        generate(prompt, repeat=repeat, do_sample=True, temperature=1.3, top_p=0.9, top_k=50)
        for prompt in PROMPTS[:2]
        for repeat in range(3)
    ]
    together = texts(ask(tiny_checkpoint(), requests, batch_size=8))
    assert texts(ask(tiny_checkpoint(), requests[::-1], batch_size=2))[::-1] == together
    assert texts(ask(tiny_checkpoint(), requests, batch_size=8, seed=1)) != together


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
        ({"num_beams": 2}, {"num_beams": 2}),
        ({"no_repeat_ngram_size": 2, "num_beams": 1}, {"no_repeat_ngram_size": 2}),
    ],
)
def test_settings_of_transformers_use_its_generate_method(
    settings: dict[str, Any], options: dict[str, Any]
) -> None:
    found = texts(
        ask(tiny_checkpoint(), [generate(prompt, **settings) for prompt in PROMPTS[:3]], batch_size=2)
    )
    assert found == [reference("llama", prompt, **options) for prompt in PROMPTS[:3]]


def test_an_unknown_setting_fails_its_request() -> None:
    bad, good = generate("is", tempratur=2), generate("is")
    outcomes = ask(tiny_checkpoint(), [bad, good])
    assert isinstance(outcomes[0], Failure) and "tempratur" in outcomes[0].message
    assert isinstance(outcomes[1], Response)


def test_the_generation_config_is_used(tmp_path: Any) -> None:
    import json
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_checkpoint(), folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "repetition_penalty": 1.5}))
    expected = [reference("llama", prompt, repetition_penalty=1.5) for prompt in PROMPTS[:2]]
    assert texts(ask(folder, [generate(prompt) for prompt in PROMPTS[:2]])) == expected


def test_out_of_memory_during_generation_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.models.hf.prefix_sharing.model_runner import ModelRunner

    requests: list[Generate] = [generate(prompt) for prompt in PROMPTS]
    expected = texts(ask(tiny_checkpoint(), requests))
    forward, refused = ModelRunner.forward, []

    def fail_with_many_rows(self: ModelRunner, **inputs: Any) -> Any:
        rows, columns = inputs["input_ids"].shape
        cache = inputs.get("past_key_values")
        if columns == 1 and cache is not None and rows > 2 and cache.get_seq_length() > 20:
            refused.append(rows)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, **inputs)

    model = HfModel(pretrained=str(tiny_checkpoint()), batch_size=5)
    model.backend.load()
    monkeypatch.setattr(ModelRunner, "forward", fail_with_many_rows)
    assert texts(ask(tiny_checkpoint(), requests, model=model)) == expected
    assert refused


def test_rows_wait_if_their_caches_do_not_fit() -> None:
    requests = [generate(prompt) for prompt in PROMPTS]
    assert texts(ask(tiny_checkpoint(), requests, batch_size=5, cache_memory_mb=1)) == texts(
        ask(tiny_checkpoint(), requests, batch_size=5)
    )
