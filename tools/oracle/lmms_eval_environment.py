"""The environment of an lmms_eval recording: no network, empty folders, datasets from the record."""

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

__all__ = ["RecordingEnvironment", "find_package_mismatch"]

_MATH_PACKAGES = {"math_verify", "latex2sympy2", "latex2sympy2_extended"}
_STUBBED_PACKAGES = (
    "torchvision", "torchaudio", "sglang", "vllm", "FlagEmbedding", "duckduckgo_search", "langchain_community",
    "playwright",
)  # fmt: skip


class RecordingEnvironment:
    """A worker's folders and patches. `HF_HOME` and the working folder stay; each record gets fresh contents."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-oracle-")).resolve()
        self.home, self.work = self.folder / "hf_home", self.folder / "work"
        self.network_attempted = False
        self.datasets: Any = None
        self._originals: list[tuple[Any, str, Any]] = []
        self._environment = dict(os.environ)
        self._cwd = Path.cwd()
        self._stubs = _StubFinder()
        os.environ |= {
            "HOME": "/root",  # of the recording machine: some requests contain paths below it
            "HF_HOME": str(self.home),
            "OPENAI_API_KEY": "dummy",
            "Deepseek_API": "dummy",  # newer clients refuse an empty key
            "OPENAI_BASE_URL": "http://judge.invalid/v1",
            "TZ": "UTC",
            "HF_DATASETS_CACHE": str(self.folder / "datasets"),
        }
        time.tzset()
        self._block_network()
        self._patch_dataset_loading()
        sys.meta_path.append(self._stubs)

    @contextmanager
    def prepare(self, record: Mapping[str, Any], media: Path, datasets: Any) -> Iterator[None]:
        """Create the folders and files of a record, without those of the record before."""
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
                continue  # a path of the recording machine: write only inside the own folders
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
        """Restore the process and remove the folders."""
        for owner, name, value in reversed(self._originals):
            setattr(owner, name, value)
        sys.meta_path.remove(self._stubs)
        os.environ.clear()
        os.environ |= self._environment
        time.tzset()
        os.chdir(self._cwd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out replaced functions: process pools of `datasets` pickle helper functions with what they refer to."""
        return {**vars(self), "_originals": []}

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _block_network(self) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            self.network_attempted = True
            raise OSError("the replay has no network access")

        connect = socket.socket.connect

        def connect_unix_only(one: socket.socket, address: Any) -> Any:
            """Allow Unix sockets only: `datasets` uses them to map in processes."""
            return connect(one, address) if one.family == socket.AF_UNIX else refuse()

        self._patch(socket.socket, "connect", connect_unix_only)
        self._patch(socket, "getaddrinfo", refuse)
        self._patch(socket, "create_connection", refuse)
        self._patch(time, "sleep", lambda _: None)

    def _patch_dataset_loading(self) -> None:
        import datasets

        for name in ("load_dataset", "load_from_disk"):
            self._patch(datasets, name, self._load_dataset)
        try:
            import huggingface_hub
        except ModuleNotFoundError:
            return
        self._patch(huggingface_hub.constants, "HF_HOME", str(self.home))  # read at import
        self._patch(huggingface_hub, "snapshot_download", self._create_snapshot)
        download = huggingface_hub.hf_hub_download
        self._patch(
            huggingface_hub,
            "hf_hub_download",
            lambda repo_id, filename, **options: (
                self._find_file(repo_id, filename) or download(repo_id, filename, **options)
            ),
        )

    def _load_dataset(self, *_: Any, split: Any = None, **__: Any) -> Any:
        """Return the recorded dataset, or one of its splits; every split has the same documents."""
        if split is None or not isinstance(self.datasets, Mapping):
            return self.datasets
        return self.datasets[split] if split in self.datasets else next(iter(self.datasets.values()))

    def _create_snapshot(self, repo_id: str, **_: Any) -> str:
        """Return the recorded folder of a repository, empty if nothing was recorded."""
        folder = self._locate_snapshot(repo_id)
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def _find_file(self, repo_id: str, filename: str) -> str:
        """Return the recorded file of a repository, or an empty string."""
        path = self._locate_snapshot(repo_id) / filename
        return str(path) if path.exists() else ""

    def _locate_snapshot(self, repo_id: str) -> Path:
        return self.home / "snap" / repo_id.replace("/", "--")


class _StubModule(ModuleType):
    """A stub package that has every attribute, as in the recording."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StubClass(name, (), {"__init__": lambda *_, **__: None})


class _StubClass(type):
    """A stub class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StubClass(name, (), {})


class _StubFinder:
    """Imports stubs for missing packages that were stubs in the recording too."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _STUBBED_PACKAGES:
            return None
        if _is_called_by("transformers."):  # transformers would read the version of a stub
            return None
        if PathFinder.find_spec(name.partition(".")[0]) is not None:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def _is_called_by(prefix: str) -> bool:
    """Return whether a module with this prefix is on the call stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(prefix):
            return True
        frame = frame.f_back
    return False


def find_package_mismatch(record: Mapping[str, Any]) -> str:
    """Return why scores cannot be compared with the installed packages; empty if they can."""
    wanted = "4.11" if (record.get("flags") or {}).get("env_variant") == "antlr411" else "4.7"
    if wanted == "4.7" and not _MATH_PACKAGES & set(record.get("deps") or ()):
        return ""
    try:
        found = version("antlr4-python3-runtime")
    except PackageNotFoundError:
        found = "none"
    return "" if found.startswith(wanted) else f"recorded with antlr4 {wanted}, installed: {found}"
