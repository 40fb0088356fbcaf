from __future__ import annotations

from typing import Any

import pytest

from assay.core.secrets import redact, redact_assignments, redact_fields, register_secret


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
