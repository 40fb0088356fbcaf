from __future__ import annotations

from typing import Any

import pytest

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.models.vllm.sampling import SamplingPlan, build_sampling


def sample(settings: dict[str, Any], *, repeat: int = 0, text: str = "Hi", **others: Any) -> SamplingPlan:
    request = Generate(
        task="t", document=0, prompt=Prompt.of_text(text), settings=Settings(settings), repeat=repeat
    )
    return build_sampling(request, **{"end_text": "</s>", "default_tokens": 256, "seed": 1234, **others})


def parameters(settings: dict[str, Any], **others: Any) -> dict[str, Any]:
    return dict(sample(settings, **others).parameters)


def test_default_settings_are_greedy_until_the_end_token() -> None:
    assert parameters({}) == {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "max_tokens": 256,
        "stop": ["</s>"],
        "temperature": 0.0,
    }


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"until": "\n"}, {"stop": ["\n", "</s>"]}),
        ({"until": ["Q:", "", "</s>"]}, {"stop": ["Q:", "</s>"]}),
        ({"max_gen_toks": 7, "max_new_tokens": 9}, {"max_tokens": 7}),
        ({"max_new_tokens": 9}, {"max_tokens": 9}),
        ({"do_sample": False, "temperature": 0.7}, {"temperature": 0.0}),
        ({"do_sample": True}, {"temperature": 1.0, "top_p": 1.0, "top_k": 0}),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5}, {"temperature": 0.5, "top_p": 0.9, "top_k": 5}),
        ({"temperature": 0.5, "top_p": 0}, {"top_p": 1.0}),
        ({"temperature": 0.5, "min_p": 0.1, "repetition_penalty": 1.2}, {"min_p": 0.1, "repetition_penalty": 1.2}),
    ],
)  # fmt: skip
def test_settings_become_vllms_parameters(settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    made = parameters(settings)
    assert {key: made[key] for key in wanted} == wanted


@pytest.mark.parametrize("key", ["do_sample", "until", "max_gen_toks", "num_beams", "use_cache"])
def test_settings_unknown_to_vllm_are_dropped(key: str) -> None:
    assert key not in parameters(
        {"do_sample": False, "until": ["\n"], "max_gen_toks": 4, "num_beams": 1, "use_cache": True}
    )


def test_repeats_and_prompts_have_distinct_reproducible_seeds() -> None:
    drawn = {"temperature": 1.0}
    seeds = [parameters(drawn, repeat=repeat)["seed"] for repeat in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    assert parameters(drawn, text="Ho")["seed"] != seeds[0]
    assert parameters({**drawn, "seed": 7})["seed"] != seeds[0] != parameters(drawn, seed=7)["seed"]


def test_greedy_answers_need_no_seed() -> None:
    assert "seed" not in parameters({"seed": 7})


def test_with_thinking_stop_strings_only_cut_the_answer() -> None:
    made = sample({"until": ["\n\n"]}, thinks=True)
    assert made.parameters["stop"] == ["</s>"] and made.stops == ("\n\n", "</s>")


def test_the_lmms_eval_preset_ignores_stops_and_raises_the_token_limit() -> None:
    made = sample({"until": ["\n\n"], "max_new_tokens": 16}, uses_stops=False, min_token_limit=4096)
    assert made.stops == ("</s>",) and made.parameters["max_tokens"] == 4096
    assert parameters({"max_new_tokens": 9000}, min_token_limit=4096)["max_tokens"] == 9000
    assert parameters({"do_sample": True}, top_p=0.95)["top_p"] == 0.95
    assert parameters({"do_sample": True, "top_p": 0.5}, top_p=0.95)["top_p"] == 0.5
