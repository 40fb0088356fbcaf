"""Where a server is."""

from __future__ import annotations

import pytest

from assay.core.errors import InvalidOption
from assay.models.remote.transport.address import parse_address


@pytest.mark.parametrize(
    "text",
    [
        "localhost:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://ho st/",
        "",
        "http://a..b/v1",
        f"http://{'a' * 64}.com",
    ],
)
def test_invalid_urls_are_rejected(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_address(text)


def test_a_url_with_a_password_is_rejected_and_redacted() -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_address("https://me:sk-secret@host/v1")
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize("query", ["key=sk-secret", "a=1&api_key=sk-secret", "access-token=sk-secret"])
def test_a_url_with_a_key_is_rejected_and_redacted(query: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_address(f"https://host/v1?{query}")
    assert "sk-secret" not in str(raised.value)


def test_a_url_is_parsed() -> None:
    address = parse_address("https://host/openai/deployments/x/?api-version=2024-10-21")
    assert (address.port, address.path, address.query) == (
        443,
        "/openai/deployments/x",
        "api-version=2024-10-21",
    )
    assert address.url == "https://host/openai/deployments/x?api-version=2024-10-21"
    assert parse_address("http://[::1]:8000/v1").host_header == "[::1]:8000"


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8000", True),
        ("http://127.1.2.3", True),
        ("http://[::1]:80", True),
        ("http://127.models.example", False),
        ("http://10.0.0.1", False),
    ],
)
def test_only_loopback_addresses_are_local(url: str, is_local: bool) -> None:
    assert parse_address(url).is_local is is_local
