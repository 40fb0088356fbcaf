"""The check of the token: a stand-in for Ray's client, in a real process."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.models.replicas import token_check

CHECK = Path(token_check.__file__).read_text(encoding="utf-8")
CLIENT = """
import sys, types

class AuthenticationError(Exception):
    pass

def connect(address):
    print("a warning of Ray", file=sys.stderr)
    {body}

services = types.SimpleNamespace(canonicalize_bootstrap_address_or_die=lambda address: address)
sys.modules["ray"] = types.ModuleType("ray")
sys.modules["ray._private"] = types.SimpleNamespace(services=services)
sys.modules["ray._raylet"] = types.SimpleNamespace(GcsClient=connect)
"""


@pytest.mark.parametrize(
    ("body", "rejected"),
    [
        ("raise AuthenticationError('the token')", True),
        ("raise RuntimeError('RPC error: InvalidAuthToken: missing or incorrect')", True),
        ("raise ConnectionError('no answer')", False),
        ("pass", False),
    ],
    ids=["rejected", "rejected, in the text", "another error", "accepted"],
)
def test_only_a_rejected_token_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    body: str,
    rejected: bool,
) -> None:
    head, future, rest = CHECK.partition("from __future__ import annotations\n")
    script = tmp_path / "check.py"
    script.write_text(head + future + CLIENT.format(body=body) + rest, encoding="utf-8")
    monkeypatch.setattr(token_check, "__file__", str(script))
    assert token_check.is_token_rejected("127.0.0.1:6379") is rejected
    assert capfd.readouterr() == ("", "")
