"""Secrets come from the environment, and stay out of texts."""

from __future__ import annotations

import pytest

from assay.core.errors import BadOption
from assay.models.remote.address import parse_address
from assay.models.remote.keys import Key, find_key, refuse_keys


def test_the_first_variable_that_is_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRST_KEY", raising=False)
    monkeypatch.setenv("SECOND_KEY", "sk-two\n")
    monkeypatch.setenv("THIRD_KEY", "sk-three")
    key = find_key(["FIRST_KEY", "SECOND_KEY"])
    assert key is not None and (key.reveal(), key.source) == ("sk-two", "SECOND_KEY")
    key = find_key(["SECOND_KEY"], given="THIRD_KEY")
    assert key is not None and key.reveal() == "sk-three"
    assert find_key(["FIRST_KEY"]) is None
    with pytest.raises(BadOption, match="FIRST_KEY"):
        find_key([], given="FIRST_KEY")


def test_a_key_with_a_line_break_inside_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAD_KEY", "sk-secret\r\nX: y")
    with pytest.raises(BadOption) as raised:
        find_key(["BAD_KEY"])
    assert "sk-secret" not in str(raised.value)


def test_a_key_hides_itself() -> None:
    key = Key("sk-secret", "A_KEY")
    assert "sk-secret" not in repr(key) + str(key)
    assert key.hide("wrong key sk-secret given") == "wrong key *** given"


@pytest.mark.parametrize("name", ["api_key", "API_KEY", "auth_token"])
def test_a_key_among_the_arguments_is_refused_without_being_shown(name: str) -> None:
    with pytest.raises(BadOption) as raised:
        refuse_keys({"model": "x", name: "sk-secret"}, "OPENAI_API_KEY")
    assert "sk-secret" not in str(raised.value) and "OPENAI_API_KEY" in raised.value.hint


@pytest.mark.parametrize(
    "text", ["localhost:8000", "ftp://host", "http://", "http://host:port", "http://ho st/", ""]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        parse_address(text)


def test_an_address_with_a_password_is_refused_without_being_shown() -> None:
    with pytest.raises(BadOption) as raised:
        parse_address("https://me:sk-secret@host/v1")
    assert "sk-secret" not in str(raised.value)


def test_an_address_is_taken_apart() -> None:
    address = parse_address("https://host/openai/deployments/x/?api-version=2024-10-21")
    assert (address.port, address.path, address.query) == (
        443,
        "/openai/deployments/x",
        "api-version=2024-10-21",
    )
    assert address.url == "https://host/openai/deployments/x?api-version=2024-10-21"
    assert parse_address("http://[::1]:8000/v1").host_header == "[::1]:8000"
