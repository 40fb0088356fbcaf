from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.vllm.arguments import parse_arguments


def engine(**given: Any) -> dict[str, Any]:
    return parse_arguments({"pretrained": "gpt2", **given}).to_engine_arguments()


def identity(**given: Any) -> dict[str, str]:
    return parse_arguments({"pretrained": "gpt2", **given}).to_identity()


def test_unset_arguments_keep_engine_defaults_except_the_prefix_cache() -> None:
    assert engine() == {
        "model": "gpt2",
        "dtype": "auto",
        "tokenizer_mode": "auto",
        "trust_remote_code": False,
        "seed": 1234,
        "enable_prefix_caching": True,
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"max_length": "512"}, {"max_model_len": 512}),
        ({"max_model_len": 512}, {"max_model_len": 512}),
        ({"tokenizer": "a/b", "revision": "v2"}, {"tokenizer": "a/b", "revision": "v2"}),
        ({"max_batch_size": 8}, {"max_num_seqs": 8}),
        ({"max_batch_size": 8, "max_num_seqs": 4}, {"max_num_seqs": 4}),
        ({"lora_local_path": "x"}, {"enable_lora": True, "max_lora_rank": 16}),
        ({"max_images": 2}, {"limit_mm_per_prompt": {"image": 2}}),
        ({"enable_prefix_caching": False}, {"enable_prefix_caching": False}),
        ({"tensor_parallel_size": 2, "data_parallel_size": 4}, {"tensor_parallel_size": 2, "data_parallel_size": 4}),
        ({"gpu_memory_utilization": 0.8, "swap_space": 4}, {"gpu_memory_utilization": 0.8, "swap_space": 4}),
        ({"hf_overrides": '{"architectures": ["X"], "deep": true}'}, {"hf_overrides": {"architectures": ["X"], "deep": True}}),
        ({"quantization": "awq", "trust_remote_code": "true"}, {"quantization": "awq", "trust_remote_code": True}),
    ],
)  # fmt: skip
def test_arguments_reach_the_engine_under_its_names(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    made = engine(**given)
    assert {key: made[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "key", ["batch_size", "device", "think_end_token", "max_gen_toks", "chat_template_args", "max_pixels"]
)
def test_arguments_of_the_adapter_are_not_passed_to_the_engine(key: str) -> None:
    assert engine(**{key: "{}" if key == "chat_template_args" else "64"}) == engine()


def test_the_argument_model_names_the_checkpoint() -> None:
    assert parse_arguments({"model": "gpt2"}).pretrained == "gpt2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "missing argument `pretrained`"),
        ({"pretrained": "gpt2", "max_length": "many"}, "`max_length`"),
        ({"pretrained": "gpt2", "max_length": 0}, "less than 1"),
        ({"pretrained": "gpt2", "max_length": 8, "max_model_len": 9}, "given twice"),
        ({"pretrained": "gpt2", "image_max_side": 9, "image_width": 9}, "cannot be combined"),
        ({"pretrained": "gpt2", "truncation_side": "top"}, "left, right, middle"),
        ({"pretrained": "gpt2", "enable_thinking": True}, "needs `think_end_token`"),
        ({"pretrained": "gpt2", "chat_template_args": {"enable_thinking": True}}, "needs `think_end_token`"),
        ({"pretrained": "gpt2", "add_bos_token": "perhaps"}, "`add_bos_token`"),
    ],
)
def test_invalid_arguments_are_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_arguments(given)


def test_enable_thinking_in_template_arguments_is_recognized() -> None:
    made = parse_arguments(
        {"pretrained": "x", "chat_template_args": {"enable_thinking": False, "date": "today"}}
    )
    assert made.enable_thinking is False and made.chat_template_args == {"date": "today"}
    assert made.to_tokenizer_arguments().template_arguments == {"enable_thinking": False, "date": "today"}


def test_the_identity_contains_only_arguments_that_change_answers() -> None:
    assert identity() == {}
    assert (
        identity(tensor_parallel_size=2, gpu_memory_utilization=0.5, max_num_seqs=3, enforce_eager=True) == {}
    )
    assert identity(quantization="awq", max_length=64, seed=5) == {
        "quantization": "awq",
        "max_length": "64",
        "seed": "5",
    }
    assert identity(kv_cache_dtype="fp8") == {"engine.kv_cache_dtype": "fp8"}
    assert identity(rope_scaling={"b": 1, "a": 2}) == {"engine.rope_scaling": '{"a": 2, "b": 1}'}
