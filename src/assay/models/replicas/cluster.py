"""The connection to Ray: an existing cluster, or a local cluster that ends with this process.

A local cluster has no dashboard, log monitor, autoscaler and usage reports, writes its logs to a temporary folder, and prints nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, InvalidOption, MissingPackage
from assay.models.replicas import cleanup_process
from assay.models.replicas.token_check import is_authentication_error, is_token_rejected
from assay.models.replicas.worker import ProcessEnvironment

__all__ = [
    "UNUSED_PROCESSES",
    "Cluster",
    "capture_environment",
    "check_address",
    "import_ray",
    "require_ray",
    "skip_unused_processes",
]

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # all lines; otherwise Ray reports the death of a worker on standard output
    "RAY_enable_metrics_collection": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",  # Ray's default is 15
}
_FORWARDED_VARIABLES = ("ASSAY_", "CUDA_MODULE_", "HF_", "HUGGINGFACE_", "NCCL_", "OMP_", "PYTHONHASHSEED", "TOKENIZERS_", "TORCH",
              "TRANSFORMERS_", "VLLM_")  # fmt: skip
"""Prefixes of the driver's environment variables that workers get, unless their node sets them."""

UNUSED_PROCESSES = ("start_monitor", "start_log_monitor", "start_api_server")
"""Methods of Ray's node that start the autoscaler, the log monitor and the dashboard."""

_POLL_INTERVAL_S = 0.2
_CONNECT_TIMEOUT_S = 5.0
_MAX_FOLDER_CHARACTERS = 40
"""Paths of Unix sockets have at most 107 bytes, and Ray adds about sixty to its folder."""


def require_ray(where: str) -> None:
    """Raise `MissingPackage` if Ray is not installed."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise MissingPackage.of("ray", f"`{where}`", extra="ray", where=where)


def check_address(address: str | None) -> None:
    """Raise `InvalidOption` for the address of a Ray client server."""
    if address is not None and address.startswith("ray://"):
        raise InvalidOption(
            f"`{address}` is the address of a Ray client server, which does not support streaming",
            where="--ray",
            hint="run the command on a node of the cluster, with `--ray auto` or `--ray HOST:6379`",
        )


def import_ray() -> Any:
    """Import Ray with its settings: it reads some of them on import."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


def capture_environment() -> ProcessEnvironment:
    """Return the environment of this process for workers."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED_VARIABLES)}
    return ProcessEnvironment(folder=os.getcwd(), path=tuple(filter(None, sys.path)), variables=variables)  # noqa: PTH109


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalClusterSize:
    """Resources of a local cluster."""

    cpus: int
    store_bytes: int


_opening = threading.Lock()
_shared: list[Cluster] = []
"""The connection of this process."""


class Cluster:
    """A connection to Ray. A process has one connection, which several `Cluster` objects can share."""

    def __init__(self, address: str | None, *, cpus: int, store_bytes: int) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._size = _LocalClusterSize(cpus=cpus, store_bytes=store_bytes)
        self._cleanup: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._ready, self._stop = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._connection: Cluster | None = None
        self._users = 0
        """Number of `Cluster` objects that use this connection."""

    @property
    def is_local(self) -> bool:
        """Whether it is a local cluster, which no other node can join."""
        return self._address is None

    def open(self) -> None:
        """Connect to a cluster or start one, which takes seconds.

        Ray's processes end with the *thread* that started them, so that none outlives a killed driver. So one thread
        starts them, waits, and ends them.

        Raises:
            AssayError: Ray does not answer or does not start.
        """
        import_ray()
        with _opening:
            self._open()

    def _open(self) -> None:
        import ray

        if _shared and _shared[0]._thread is not None:
            self._connection = _shared[0]
            self._connection._users += 1
        if ray.is_initialized():
            return
        self._connection, self._users = self, 1
        _shared[:] = [self]
        self._ready.clear()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run_connection, name="assay-ray", daemon=True)
        self._thread.start()
        while not self._ready.wait(_POLL_INTERVAL_S):
            if self._stop.is_set():  # the caller was cancelled; the thread ends when Ray answers
                self._thread = None
                raise AssayError("stopped while connecting to Ray")
        if self._error is not None:
            self._thread.join()
            self._thread = None
            raise self._convert_error(self._error) from None

    async def join(self) -> None:
        """Open the connection in a thread; can be cancelled."""
        try:
            await asyncio.to_thread(self.open)
        except asyncio.CancelledError:
            self._stop.set()
            raise

    def close(self) -> None:
        """Disconnect after the last user of the connection; a local cluster ends."""
        with _opening:
            holder, self._connection = self._connection, None
            if holder is not None:
                holder._users -= 1
                if not holder._users:
                    holder._disconnect()

    def _disconnect(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def resources(self) -> Mapping[str, float]:
        """Return all resources of the cluster, free or in use."""
        import ray

        return dict(ray.cluster_resources())

    def node_resources(self) -> Sequence[Mapping[str, float]]:
        """Return the resources of each node, free or in use."""
        import ray

        return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]

    def _run_connection(self) -> None:
        import ray

        self._error = None
        try:
            with warnings.catch_warnings(), _preserve_signal_handlers():
                warnings.simplefilter("ignore")
                self._init(ray)
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            self._error = error
        finally:
            self._ready.set()
        if self._error is None:
            self._stop.wait()
            with suppress(Exception):
                ray.shutdown()
        if self._cleanup is not None:
            self._cleanup.communicate(cleanup_process.DONE)  # let it remove the folder

    def _check_listening(self) -> None:
        """Fail within seconds if nothing listens at the address: Ray retries for minutes.

        Raises:
            OSError: The connection is refused or times out.
        """
        host, _, port = (self._address or "").rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()

    def _init(self, ray: Any) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        common = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        if self._address is not None:
            self._check_listening()
            if is_token_rejected(self._address):
                raise ConnectionError("InvalidAuthToken")
            ray.init(address=self._address, **common)
            return
        folder = _make_short_folder()
        self._cleanup = subprocess.Popen(
            [sys.executable, "-I", cleanup_process.__file__, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        os.environ[cleanup_process.FOLDER_VARIABLE] = str(folder)
        try:
            self._start(ray, folder, common)
        finally:
            del os.environ[cleanup_process.FOLDER_VARIABLE]

    def _start(self, ray: Any, folder: Path, common: Mapping[str, Any]) -> None:
        with skip_unused_processes():
            ray.init(
                address="local",
                include_dashboard=False,
                num_cpus=self._size.cpus,
                object_store_memory=self._size.store_bytes,
                _temp_dir=str(folder),
                **common,
            )

    def _convert_error(self, error: Exception) -> AssayError:
        if self._address is not None and is_authentication_error(error):
            return InvalidOption(
                f"Ray at `{self._address}` rejected the authentication token",
                where="--ray",
                hint="set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the token of the cluster (`ray get-auth-token` on its head node)",
            )
        if self._address is not None and isinstance(
            error, (ConnectionRefusedError, TimeoutError, socket.gaierror)
        ):
            return InvalidOption(
                f"nothing listens at `{self._address}`: {error}",
                where="--ray",
                hint="start a cluster with `ray start --head`, or remove --ray to use a local one",
            )
        if self._address is not None:
            return InvalidOption(
                f"cannot connect to Ray at `{self._address}`: {str(error).strip().splitlines()[0]}",
                where="--ray",
                hint="start a cluster with `ray start --head`, or remove --ray to use a local one",
            )
        return AssayError(f"Ray does not start: {type(error).__name__}: {error}")


@contextmanager
def skip_unused_processes() -> Iterator[None]:
    """Make Ray start no autoscaler, log monitor and dashboard, which halves the start-up.

    Ray has no option for it: with `include_dashboard=False` it still starts the dashboard's process and waits for it. If a version
    of Ray has other methods, it starts all processes.
    """
    try:
        from ray._private.node import Node
    except ImportError:
        yield
        return
    methods = {name: getattr(Node, name) for name in UNUSED_PROCESSES if hasattr(Node, name)}
    try:
        for name in methods:
            setattr(Node, name, _start_nothing)
        yield
    finally:
        for name, method in methods.items():
            setattr(Node, name, method)


def _start_nothing(node: Any, **options: Any) -> None:
    pass


@contextmanager
def _preserve_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces: its own print a stack trace on termination.

    `signal.signal` works only in the main thread.
    """
    get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get.argtypes, get.restype = [ctypes.c_int], ctypes.c_void_p
    put.argtypes, put.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = {number: get(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            put(number, handler)


def _make_short_folder() -> Path:
    """Create a temporary folder whose path is short enough for Ray's sockets."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _MAX_FOLDER_CHARACTERS - 16 else "/tmp"
    return Path(tempfile.mkdtemp(prefix="assay-ray-", dir=parent))
