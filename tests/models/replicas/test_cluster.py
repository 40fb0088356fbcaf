"""Connecting to Ray: errors say what is wrong, and soon."""

from __future__ import annotations

import socket
import time
from importlib.util import find_spec
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.replicas.cluster import Cluster, import_ray

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="not installed: ray"
)  # Ray reads settings on import


def test_a_port_where_nothing_listens_is_an_error_within_seconds() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(InvalidOption, match=f"nothing listens at `{address}`"):
        Cluster(address, cpus=1, store_bytes=2**28).open()
    assert time.monotonic() - began < 10


def test_a_rejected_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray 2.60 reports it: the cause of the failed connection says why."""
    ray = import_ray()

    def refuse(**_: Any) -> None:
        why = ConnectionError("RPC error: InvalidAuthToken: Authentication token is missing or incorrect")
        raise ConnectionError("Failed to connect to Ray cluster") from why

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr("assay.models.replicas.cluster.is_token_rejected", lambda address: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = Cluster(f"127.0.0.1:{server.getsockname()[1]}", cpus=1, store_bytes=2**28)
        with pytest.raises(InvalidOption, match="rejected the authentication token") as raised:
            cluster.open()
    assert "RAY_AUTH_TOKEN" in raised.value.hint


def test_a_rejected_token_is_reported_before_ray_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = import_ray()

    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray would retry for 20 seconds"))
    monkeypatch.setattr("assay.models.replicas.cluster.is_token_rejected", lambda address: True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = Cluster(f"127.0.0.1:{server.getsockname()[1]}", cpus=1, store_bytes=2**28)
        with pytest.raises(InvalidOption, match="rejected the authentication token"):
            cluster.open()
