"""`--model_args`: the names of lm-eval are accepted, mistakes are errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.hf.arguments import parse_arguments


def test_values_are_parsed_by_type() -> None:
    found = parse_arguments(
        {
            "pretrained": "a/b",
            "torch_dtype": "float16",
            "max_length": "512",
            "trust_remote_code": "True",
            "add_bos_token": False,
            "chat_template_args": '{"x": 1}',
            "think_end_token": "200",
            "enable_thinking": True,
            "batch_size": "auto:4",
            "load_in_4bit": "true",
            "config.rope_theta": "1e6",
        }
    )
    assert (found.dtype, found.max_length, found.trust_remote_code) == ("float16", 512, True)
    assert (found.add_bos_token, found.think_end_token, found.batch_size) == (False, 200, "auto")
    assert found.template_arguments == {"x": 1, "enable_thinking": True}
    assert found.loading == {"load_in_4bit": True, "config.rope_theta": 1e6}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "missing argument `pretrained`"),
        ({"pretrained": "x", "pertained": "y"}, "unknown argument `pertained`"),
        ({"pretrained": "x", "max_length": "many"}, "argument `max_length` of `hf`"),
        ({"pretrained": "x", "max_length": 0}, "at least 1"),
        ({"pretrained": "x", "batch_size": "0"}, "not a batch size"),
        ({"pretrained": "x", "batch_size": "auto:x"}, "`batch_size`"),
        (
            {"pretrained": "x", "dtype": "float33"},
            "argument `dtype` of `hf`: `float33` is not a supported torch dtype",
        ),
        ({"pretrained": "x", "softmax_dtype": "int8"}, "not a supported torch dtype"),
        ({"pretrained": "x", "backend": "bert"}, "causal or seq2seq"),
        ({"pretrained": "x", "peft": "a", "delta": "b"}, "cannot be combined"),
        ({"pretrained": "x", "enable_thinking": True}, "needs `think_end_token`"),
        ({"pretrained": "x", "chat_template_args": "[1]"}, "not a mapping"),
    ],
)
def test_an_invalid_argument_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)):
        parse_arguments(given)


def test_a_misspelled_argument_gets_a_suggestion() -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_arguments({"pretrained": "x", "add_bos_tokens": True})
    assert caught.value.hint == "did you mean `add_bos_token`?"


def test_the_identity_contains_only_arguments_that_change_answers() -> None:
    plain = parse_arguments({"pretrained": "x", "batch_size": 8, "device": "cpu", "parallelize": False})
    assert plain.to_identity() == {}
    other = parse_arguments({"pretrained": "y", "max_length": 9, "load_in_8bit": True, "seed": 3})
    assert other.to_identity() == {"max_length": "9", "seed": "3", "loading": '{"load_in_8bit": true}'}
