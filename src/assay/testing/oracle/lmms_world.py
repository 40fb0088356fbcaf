"""The world a corpus of lmms-eval was recorded in: no network, empty folders, datasets from the record."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

__all__ = ["World", "mismatch"]

_MATHEMATICS = {"math_verify", "latex2sympy2", "latex2sympy2_extended"}
_STUBBED = ("torchvision", "torchaudio", "sglang", "vllm")


class World:
    """One worker's folders. `HF_HOME` and the working folder stay the same, their contents are each record's own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-oracle-")).resolve()
        self.home, self.work = self.folder / "hf_home", self.folder / "work"
        self.network_attempted = False
        self.datasets: Any = None
        self._before: list[tuple[Any, str, Any]] = []
        self._environment = dict(os.environ)
        self._cwd = Path.cwd()
        self._stubs = _StubFinder()
        os.environ |= {
            "HF_HOME": str(self.home),
            "OPENAI_API_KEY": "dummy",
            "Deepseek_API": "dummy",  # newer clients refuse an empty key
            "OPENAI_BASE_URL": "http://judge.invalid/v1",
            "TZ": "UTC",
            "HF_DATASETS_CACHE": str(self.folder / "datasets"),
        }
        time.tzset()
        self._close_network()
        self._replace_loading()
        sys.meta_path.append(self._stubs)

    @contextmanager
    def of(self, record: Mapping[str, Any], media: Path, datasets: Any) -> Iterator[None]:
        """The folders and files a record needs; what it leaves behind is gone afterwards."""
        for folder in (self.home, self.work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        os.chdir(self.work)
        self.network_attempted, self.datasets = False, datasets
        for name, source in (record.get("files") or {}).items():
            path = Path(name.replace("$HF_HOME", str(self.home)).replace("$WORK", str(self.work)))
            if not path.is_absolute():
                path = self.work / path
            if self.folder not in path.resolve().parents:
                continue  # a path of the recording machine: nothing outside our folders is written
            if source == "<dir>":
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(media / source, path)
        try:
            yield
        finally:
            os.chdir(self.folder)

    def close(self) -> None:
        """Put everything back and remove the folders."""
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)
        sys.meta_path.remove(self._stubs)
        os.environ.clear()
        os.environ |= self._environment
        time.tzset()
        os.chdir(self._cwd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _close_network(self) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            self.network_attempted = True
            raise OSError("there is no network in a replay")

        connect = socket.socket.connect

        def connect_here(one: socket.socket, address: Any) -> Any:
            """Only to processes of this machine, by a file: `datasets` maps with those."""
            return connect(one, address) if one.family == socket.AF_UNIX else refuse()

        self._replace(socket.socket, "connect", connect_here)
        self._replace(socket, "getaddrinfo", refuse)
        self._replace(socket, "create_connection", refuse)
        self._replace(time, "sleep", lambda _: None)

    def _replace_loading(self) -> None:
        import datasets

        for name in ("load_dataset", "load_from_disk"):
            self._replace(datasets, name, lambda *_, **__: self.datasets)
        try:
            import huggingface_hub
        except ModuleNotFoundError:
            return
        self._replace(huggingface_hub, "snapshot_download", self._snapshot)

    def _snapshot(self, repo_id: str, **_: Any) -> str:
        """Where a recording had the files of a repository; an empty folder where it had none."""
        folder = self.home / "snap" / repo_id.replace("/", "--")
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)


class _Anything(ModuleType):
    """A package that can be imported and has every name, as in the recording."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _AnyName(type):
    """A class that has every name itself."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _StubFinder:
    """Finds the packages that were only stubs in the recording, where they are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _STUBBED:
            return None
        if _asked_by("transformers."):  # it would look for the version of a stub
            return None
        if PathFinder.find_spec(name.partition(".")[0]) is not None:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def _asked_by(prefix: str) -> bool:
    """Whether a module of this name is importing, or looking for, something."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(prefix):
            return True
        frame = frame.f_back
    return False


def mismatch(record: Mapping[str, Any]) -> str:
    """Why a record's scores cannot be compared with the packages installed here; empty when they can."""
    wanted = "4.11" if (record.get("flags") or {}).get("env_variant") == "antlr411" else "4.7"
    if wanted == "4.7" and not _MATHEMATICS & set(record.get("deps") or ()):
        return ""
    try:
        found = version("antlr4-python3-runtime")
    except PackageNotFoundError:
        found = "no"
    return "" if found.startswith(wanted) else f"recorded with antlr4 {wanted}, here is {found}"
