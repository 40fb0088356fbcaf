"""Keys come from the environment or a keyring, and are known as secrets from then on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from assay.core.errors import InvalidOption
from assay.core.secrets import redact
from assay.models.credentials import find_key, reject_key_arguments, require_key


def test_the_first_variable_that_is_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRST_KEY", raising=False)
    monkeypatch.setenv("SECOND_KEY", " sk-from-environment ")
    assert find_key(["FIRST_KEY", "SECOND_KEY"]) == "sk-from-environment"
    assert redact("bad key sk-from-environment") == "bad key ***"


def test_the_keyring_is_used_if_no_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {("assay", "SOME_KEY"): "sk-from-keyring"}
    keyring = SimpleNamespace(get_password=lambda service, name: kept.get((service, name)))
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert find_key(["SOME_KEY"]) == "sk-from-keyring"


def test_a_failing_keyring_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(service: str, name: str) -> str:
        raise RuntimeError("no desktop")

    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_password=locked))
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(InvalidOption, match="no API key for Claude") as caught:
        require_key(["SOME_KEY"], service="Claude")
    assert "set `SOME_KEY`" in caught.value.hint


def test_a_key_as_an_argument_is_rejected_and_redacted() -> None:
    with pytest.raises(InvalidOption, match="`api_key` is not allowed as an argument") as caught:
        reject_key_arguments({"model": "x", "api_key": "sk-as-argument"}, variables=["SOME_KEY"])
    assert "sk-as-argument" not in str(caught.value)
    assert "SOME_KEY" in caught.value.hint
    assert redact("sk-as-argument") == "***"


def test_placeholder_keys_are_allowed_as_arguments() -> None:
    reject_key_arguments({"api_key": "EMPTY", "model": "x"}, variables=["SOME_KEY"])


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("sk-schl\u00fcssel-4711", "other than printable ASCII"),
        ("sk-\u4f60\u597d-4711", "other than printable ASCII"),
        ("sk-first-line\nsk-second-line", "several lines"),
        ("sk-first-line\r\nX-Injected: yes", "several lines"),
        ("sk-with-\x00-4711", "other than printable ASCII"),
    ],
)
def test_a_key_that_no_header_can_contain_is_rejected(
    key: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"SOME_KEY": key})
    with pytest.raises(InvalidOption, match=says) as caught:
        find_key(["SOME_KEY"])
    assert "SOME_KEY" in caught.value.where
    assert not any(line in str(caught.value) for line in key.splitlines())
    assert not any(line in redact(f"the server says {key}") for line in key.splitlines())
