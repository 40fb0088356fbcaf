"""Arguments of `llamacpp` and sampling parameters of tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.models.llamacpp.arguments import LlamaCppArguments


def arguments(batch_size: int | str = 1, **given: Any) -> LlamaCppArguments:
    return LlamaCppArguments.parse(given, batch_size=batch_size, model="llamacpp")


def request(repeat: int = 0, text: str = "Hi", **settings: Any) -> Generate:
    return Generate(
        task="t", document=0, repeat=repeat, prompt=Prompt.of_text(text), settings=Settings(settings)
    )


def test_texts_are_parsed_as_numbers_and_booleans() -> None:
    read = arguments(n_ctx="512", flash_attn="true", cache_prompt=False, n_threads="3", seed="7")
    assert (read.n_ctx, read.flash_attn, read.cache_prompt, read.n_threads, read.seed) == (
        512,
        True,
        False,
        3,
        7,
    )


def test_argument_names_of_other_adapters_are_accepted() -> None:
    read = arguments(max_length=300, threads=2, n_parallel=3)
    assert (read.n_ctx, read.n_threads, read.slots) == (300, 2, 3)


@pytest.mark.parametrize(("batch_size", "slots"), [(1, 1), (8, 8), ("auto", 4)])
def test_the_batch_size_is_the_number_of_slots(batch_size: int | str, slots: int) -> None:
    assert arguments(batch_size).slots == slots


def test_the_default_is_half_of_the_cpus() -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("needs sched_getaffinity")
    assert arguments().n_threads == max(1, len(os.sched_getaffinity(0)) // 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_ctx": "many"}, "`n_ctx` must be an integer"),
        ({"n_ctx": -1}, "at least 0"),
        ({"n_parallel": 0}, "at least 1"),
        ({"flash_attn": "perhaps"}, "true or false"),
        ({"n_cxt": 5}, "unknown argument `n_cxt`"),
        ({"chat_template_args": "[1]"}, "JSON object"),
    ],
)
def test_an_invalid_argument_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        arguments(**given)


def test_the_default_context_length_is_that_of_the_model_up_to_4096() -> None:
    assert arguments().find_context_length(2048) == 2048
    assert arguments().find_context_length(131_072) == 4096
    assert arguments().find_context_length(None) == 4096
    assert arguments(n_ctx=131_072).find_context_length(131_072) == 131_072


def test_a_template_can_be_a_name_text_or_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages }}")
    assert arguments(chat_template="{{ x }}").find_template({}) == "{{ x }}"
    assert arguments(chat_template=str(path)).find_template({}) == "{{ messages }}"
    assert arguments(chat_template="tool_use").find_template({"tool_use": "{{ y }}"}) == "{{ y }}"
    assert arguments(chat_template="default").find_template({"tool_use": "{{ y }}"}) == ""
    with pytest.raises(InvalidOption, match="chat template not found: `rag`") as raised:
        arguments(chat_template="rag").find_template({"tool_use": "{{ y }}"})
    assert "tool_use" in raised.value.hint


def test_thinking_is_switched_in_the_template() -> None:
    read = arguments(enable_thinking="false", chat_template_args='{"style": "short"}')
    assert read.chat_template_args == {"enable_thinking": False, "style": "short"}


def test_the_identity_contains_only_arguments_that_change_answers() -> None:
    plain = arguments().to_identity()
    assert plain == arguments(8, n_threads=7, cache_prompt=False).to_identity()
    for changed in ({"seed": 1}, {"flash_attn": True}, {"add_bos_token": True}, {"enable_thinking": False}):
        assert arguments(**changed).to_identity() != plain


def test_greedy_selects_the_most_likely_token_with_any_other_setting() -> None:
    several: list[dict[str, Any]] = [
        {}, {"do_sample": False, "temperature": 0.7}, {"temperature": 0.0, "top_p": 0.5},
    ]  # fmt: skip
    for settings in several:
        asked = arguments().build_sampling(request(**settings))
        assert (asked["samplers"], asked["top_k"], asked["temperature"]) == (["top_k"], 1, 0.0)


def test_samplers_are_in_the_order_of_transformers() -> None:
    asked = arguments().build_sampling(request(temperature=0.8, top_p=0.9, top_k=40))
    assert asked["samplers"] == ["temperature", "top_k", "top_p", "min_p"]
    assert (asked["temperature"], asked["top_p"], asked["top_k"], asked["min_p"]) == (0.8, 0.9, 40, 0.0)
    bare = arguments().build_sampling(request(do_sample=True))
    assert (bare["temperature"], bare["top_p"], bare["top_k"], bare["min_p"]) == (1.0, 1.0, 0, 0.0)


def test_each_prompt_repeat_and_seed_has_its_own_seed() -> None:
    def seed(settings: dict[str, Any] | None = None, **of_request: Any) -> int:
        return int(
            arguments().build_sampling(request(**of_request, do_sample=True, **(settings or {})))["seed"]
        )

    assert seed() == seed()
    assert len({seed(), seed(repeat=1), seed(text="Ho"), seed({"seed": 5})}) == 4
    assert arguments(seed=5).build_sampling(request(do_sample=True))["seed"] == seed({"seed": 5})


def test_penalties_have_the_names_of_transformers_and_openai() -> None:
    asked = arguments().build_sampling(request(repetition_penalty=1.2))
    assert asked["repeat_penalty"] == 1.2
    assert asked["samplers"][0] == "penalties"
