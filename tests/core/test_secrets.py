from __future__ import annotations

import json
from typing import Any

import pytest

from assay.core.secrets import (
    contains_redacted,
    redact,
    redact_assignments,
    redact_fields,
    redact_values,
    register_environment_secrets,
    register_secret,
    register_secrets_in,
)


@pytest.mark.parametrize(
    "value",
    [
        {"openai_key": "s3cret"},
        {"authorization": "Bearer s3cret"},
        {"credentials": "s3cret"},
        {"client": {"api-key": "s3cret"}},
        {"servers": [{"password": "s3cret"}]},
        {"extra_headers": {"X-Any": "s3cret"}},
        {"base_url": "https://me:s3cret@host/v1"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_secret_is_hidden_wherever_it_stands(value: dict[str, Any]) -> None:
    assert "s3cret" not in str(redact_fields(value))


@pytest.mark.parametrize("key", ["tokenizer", "max_tokens", "add_bos_token", "model", "keyboard"])
def test_a_harmless_key_is_not_redacted(key: str) -> None:
    assert redact_fields({key: "plain"}) == {key: "plain"}


def test_a_command_line_is_shown_without_its_secrets() -> None:
    shown = redact_assignments(
        "assay run --model_args 'model=x,api_key=s3cret' --gen_kwargs '{\"auth_token\": \"s3cret\"}'"
    )
    assert "s3cret" not in shown
    assert "model=x" in shown


def test_a_key_that_is_known_is_taken_out_of_what_others_say() -> None:
    register_secret("sk-planted-1234567890")
    said = "401: Incorrect API key provided: sk-planted-1234567890."
    assert redact(said) == "401: Incorrect API key provided: ***."
    assert "planted" not in redact_assignments(said)
    assert "planted" not in str(redact_fields({"message": [said]}))


def test_a_word_too_short_to_be_a_key_blanks_nothing_out() -> None:
    register_secret("none")
    assert redact("there is none") == "there is none"


NESTED = [
    {"api_key": "SECRET"},
    {"extra_body": {"client": [{"password": "SECRET"}]}},
    {"extra_body": '{"nested": {"client_secret": "SECRET"}}'},
    {"url": "https://host/x?a=1&access_token=SECRET&b=2"},
    {"url": "https://host/x?key=SECRET"},
    {"proxy": "http://user:SECRET@host"},
    {"headers": {"X-Team": "SECRET"}},
    {"default_headers": {"Authorization": "Bearer SECRET"}},
    {"hf_token": "SECRET"},
    {"auth": "SECRET"},
]


@pytest.mark.parametrize("options", NESTED, ids=str)
def test_a_secret_in_options_is_redacted_wherever_it_appears_later(options: dict[str, Any]) -> None:
    secret = f"planted-{NESTED.index(options)}-0815"
    register_secrets_in(json.loads(json.dumps(options).replace("SECRET", secret)))
    assert redact(f"the server says {secret}!") == "the server says ***!"
    assert redact_values({"a": [{"b": secret}]}) == {"a": [{"b": "***"}]}


def test_a_key_is_known_by_its_shape() -> None:
    register_secrets_in({"note": ["please use sk-abcdefghijklmnop123 for this"]})
    assert redact("sk-abcdefghijklmnop123") == "***"


@pytest.mark.parametrize(
    "options",
    [
        {"stop_token": "</planted-a>"},
        {"label_key": "planted-column"},
        {"system_prompt": "planted: the key idea"},
        {"eos_token": "planted-end"},
        {"tokenizer": "planted/tokenizer"},
        {"key": "planted-field"},
    ],
    ids=str,
)
def test_ordinary_words_are_not_registered(options: dict[str, str]) -> None:
    register_secrets_in(options)
    (value,) = options.values()
    assert redact(value) == value


def test_other_forms_of_a_secret_and_overlapping_secrets_are_redacted() -> None:
    register_secret("planted-base")
    register_secret('planted-base/"more"')
    assert redact(json.dumps({"x": 'planted-base/"more"'})) == '{"x": "***"}'
    assert redact("https://h/?k=planted-base%2F%22more%22") == "https://h/?k=***"


def test_keys_of_the_environment_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VENDOR_API_KEY", "vendor-key-from-environment")
    monkeypatch.setenv("HARMLESS_VALUE", "harmless-value-of-environment")
    register_environment_secrets()
    assert redact("vendor-key-from-environment") == "***"
    assert redact("harmless-value-of-environment") == "harmless-value-of-environment"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("***", True),
        ({"a": [{"b": "x=***"}]}, True),
        ("https://***@host", True),
        ("***bold***", False),
        (3, False),
    ],
)
def test_redacted_values_are_recognised(value: Any, expected: bool) -> None:
    assert contains_redacted(value) is expected
