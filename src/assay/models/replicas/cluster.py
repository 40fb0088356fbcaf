"""The Ray that replicas and workers run on: one that was there, or one of our own that ends with us.

A Ray of our own has no dashboard, reports to nobody, writes its logs into a folder of its own that goes with it, and
prints nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, BadOption, MissingPackage
from assay.models.replicas import keeper
from assay.models.replicas.worker import Surroundings

__all__ = ["Cluster", "check_address", "require_ray", "surroundings"]

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # every line: a worker's death is told on standard output otherwise
    "RAY_enable_metrics_collection": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",  # replicas are what the machine is there for, not a sideline at priority 15
}
_PASSED_ON = ("ASSAY_", "CUDA_MODULE_", "HF_", "HUGGINGFACE_", "NCCL_", "OMP_", "PYTHONHASHSEED", "TOKENIZERS_", "TORCH",
              "TRANSFORMERS_", "VLLM_")  # fmt: skip
"""Variables of the driver that workers get, wherever they are, unless their machine says otherwise."""

_LOOK_S = 0.2
_LONGEST_FOLDER = 40
"""Unix sockets have names of at most 107 bytes, and Ray adds some sixty to its folder."""


def require_ray(where: str) -> None:
    """Raises `MissingPackage`, which says how to get it, unless Ray is installed."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise MissingPackage.of("ray", f"`{where}`", extra="ray", where=where)


def check_address(address: str | None) -> None:
    """Raises `BadOption` for an address that drivers cannot join from outside."""
    if address is not None and address.startswith("ray://"):
        raise BadOption(
            f"`{address}` is the address of Ray's client server, through which answers do not stream",
            where="--ray",
            hint="run the command on a machine of the cluster, with `--ray auto` or `--ray HOST:6379`",
        )


def surroundings() -> Surroundings:
    """This process, as workers need to know it."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    return Surroundings(folder=os.getcwd(), path=tuple(filter(None, sys.path)), variables=variables)  # noqa: PTH109


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a Ray of our own has to offer."""

    cpus: int
    store_bytes: int


_opening = threading.Lock()
_shared: list[Cluster] = []
"""The connection of this process."""


class Cluster:
    """A connection to Ray, opened when needed. Opened inside a process that is connected already, it is that connection."""

    def __init__(self, address: str | None, *, cpus: int, store_bytes: int) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._wanted = _Wanted(cpus=cpus, store_bytes=store_bytes)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._ready, self._over = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._holder: Cluster | None = None
        self._users = 0
        """Who is connected through this connection: a process has one."""

    @property
    def own(self) -> bool:
        """Whether it is a Ray of our own: nothing will ever join it."""
        return self._address is None

    def open(self) -> None:
        """Connect, or start; takes seconds.

        Ray's processes end with the *thread* that started them, so that none outlives a driver that was killed: one
        thread starts them, waits, and ends them.

        Raises:
            AssayError: It does not answer, or does not start.
        """
        for name, value in _SETTINGS.items():  # some are read when Ray is imported
            os.environ.setdefault(name, value)
        with _opening:
            self._open()

    def _open(self) -> None:
        import ray

        if _shared and _shared[0]._thread is not None:
            self._holder = _shared[0]
            self._holder._users += 1
        if ray.is_initialized():
            return
        self._holder, self._users = self, 1
        _shared[:] = [self]
        self._ready.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._hold, name="assay-ray", daemon=True)
        self._thread.start()
        while not self._ready.wait(_LOOK_S):
            if (
                self._over.is_set()
            ):  # whoever waited has been stopped; the thread ends when Ray answers, or not
                self._thread = None
                raise AssayError("the run was stopped while Ray was being joined")
        if self._error is not None:
            self._thread.join()
            self._thread = None
            raise self._trouble(self._error) from None

    async def join(self) -> None:
        """`open` for those who may be stopped meanwhile."""
        try:
            await asyncio.to_thread(self.open)
        except asyncio.CancelledError:
            self._over.set()
            raise

    def close(self) -> None:
        """Disconnect, with the last who does so; a Ray of our own ends."""
        with _opening:
            holder, self._holder = self._holder, None
            if holder is not None:
                holder._users -= 1
                if not holder._users:
                    holder._end()

    def _end(self) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None

    def resources(self) -> Mapping[str, float]:
        """Everything the cluster has, free or not."""
        import ray

        return dict(ray.cluster_resources())

    def _hold(self) -> None:
        import ray

        self._error = None
        try:
            with warnings.catch_warnings(), _signals_kept():
                warnings.simplefilter("ignore")
                self._init(ray)
        except Exception as error:  # noqa: BLE001 - raised in the thread that asked
            self._error = error
        finally:
            self._ready.set()
        if self._error is None:
            self._over.wait()
            with suppress(Exception):
                ray.shutdown()
        if self._keeper is not None:
            self._keeper.communicate(keeper.DONE)  # it clears up

    def _init(self, ray: Any) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        common = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        if self._address is not None:
            ray.init(address=self._address, **common)
            return
        folder = _short_folder()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        os.environ[keeper.MARK] = str(folder)
        try:
            self._start(ray, folder, common)
        finally:
            del os.environ[keeper.MARK]

    def _start(self, ray: Any, folder: Path, common: Mapping[str, Any]) -> None:
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=self._wanted.cpus,
            object_store_memory=self._wanted.store_bytes,
            _temp_dir=str(folder),
            **common,
        )

    def _trouble(self, error: Exception) -> AssayError:
        if self._address is not None:
            return BadOption(
                f"no Ray answers at `{self._address}`: {str(error).strip().splitlines()[0]}",
                where="--ray",
                hint="`ray start --head` starts one; without --ray Assay starts its own",
            )
        return AssayError(f"Ray does not start: {type(error).__name__}: {error}")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray's core takes termination signals over and prints a stack trace; they are given back to Python.

    `signal.signal` would do, but only in the main thread.
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


def _short_folder() -> Path:
    """A folder of our own, with a name short enough for Ray's sockets."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _LONGEST_FOLDER - 16 else "/tmp"
    return Path(tempfile.mkdtemp(prefix="assay-ray-", dir=parent))
