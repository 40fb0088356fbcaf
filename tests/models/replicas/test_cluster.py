"""Connecting to Ray: errors say what is wrong, and soon."""

from __future__ import annotations

import socket
import sys
import time
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.replicas.cluster import UNUSED_PROCESSES, Cluster, import_ray, skip_unused_processes

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


def test_a_local_cluster_starts_only_the_processes_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Node:
        """As Ray 2.60 starts the processes of a head node."""

        def start(self) -> None:
            self.start_gcs_server()
            self.start_monitor()
            self.start_api_server(include_dashboard=False, raise_on_failure=False)
            self.start_log_monitor()

        def start_gcs_server(self) -> None:
            started.append("server")

        def start_monitor(self) -> None:
            started.append("autoscaler")

        def start_api_server(self, *, include_dashboard: bool, raise_on_failure: bool) -> None:
            started.append("dashboard")

        def start_log_monitor(self) -> None:
            started.append("log monitor")

    monkeypatch.setitem(sys.modules, "ray._private.node", SimpleNamespace(Node=Node))
    with skip_unused_processes():
        Node().start()
    assert started == ["server"]
    Node().start()
    assert started == ["server", "server", "autoscaler", "dashboard", "log monitor"], (
        "others may use Ray, too"
    )


def test_another_version_of_ray_starts_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        def start_everything(self) -> str:
            return "started"

    monkeypatch.setitem(sys.modules, "ray._private.node", SimpleNamespace(Node=Node))
    with skip_unused_processes():
        assert Node().start_everything() == "started"
    monkeypatch.setitem(sys.modules, "ray._private.node", None)
    with skip_unused_processes():
        pass


def test_the_installed_ray_has_the_methods_that_are_skipped() -> None:
    from ray._private.node import Node

    assert all(callable(getattr(Node, name)) for name in UNUSED_PROCESSES)
