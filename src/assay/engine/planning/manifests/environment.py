"""Describe the environment of a run: versions, hardware, git commits of the task folders.

Imports nothing heavy. What cannot be determined is omitted: it never stops a run.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from assay.core.entry_points import ImportPathStamp, find_entry_points, stamp_import_path
from assay.core.fingerprints import digest_bytes, digest_text
from assay.core.installation import DISTRIBUTION, assay_version
from assay.core.secrets import redact_assignments

__all__ = ["compute_code_digests", "describe_hardware", "find_commits", "list_versions"]

_PACKAGES = """accelerate datasets evaluate huggingface-hub httpx jinja2 litellm lm-eval lmms-eval nltk numpy openai peft
    pillow pyarrow pyyaml ray rouge-score sacrebleu safetensors scikit-learn sglang tokenizers torch torchcodec
    torchvision transformers vllm""".split()
"""Packages that can affect prompts, answers or scores."""

_PLUGINS = "aggregations compat filters judges metrics models sandboxes sinks".split()
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_COMMAND_TIMEOUT_S = 10.0


def list_versions() -> dict[str, Any]:
    """Return the versions of Assay, Python and the installed packages that matter, plugins included."""
    return {
        "assay": assay_version(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "packages": dict(_list_package_versions(stamp_import_path())),
    }


@lru_cache(maxsize=1)
def _list_package_versions(_: ImportPathStamp) -> dict[str, str]:
    packages = {name: found for name in _PACKAGES if (found := _find_version(name))}
    for kind in _PLUGINS:
        for plugin in find_entry_points(f"assay.{kind}"):
            if plugin.distribution and plugin.distribution != DISTRIBUTION:
                packages[plugin.distribution] = _find_version(plugin.distribution) or "unknown"
    return dict(sorted(packages.items()))


def _find_version(name: str) -> str | None:
    """Return the version of an installed package. `Distribution.version` would parse the whole description of the package."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    stated = _VERSION.search(found.read_text("METADATA") or "")
    return stated[1] if stated else found.version


@lru_cache(maxsize=1)
def compute_code_digests() -> dict[str, str]:
    """Hash the source of each package of Assay that affects prompts and scores."""
    root = Path(__file__).resolve().parents[1]
    folders = {f"assay.{name}": root / name for name in ("engine", "models", "scoring", "stats", "tasks")}
    folders["assay_compat"] = root.parent / "assay_compat"
    return {name: _folder_digest(folder) for name, folder in folders.items() if folder.is_dir()}


def _folder_digest(folder: Path) -> str:
    files = sorted(folder.rglob("*.py"))
    pieces = [f"{file.relative_to(folder).as_posix()} {digest_bytes(file.read_bytes())}" for file in files]
    return digest_text(*pieces)


@lru_cache(maxsize=1)
def describe_hardware() -> dict[str, Any]:
    """Return machine, processors, memory and GPUs."""
    found: dict[str, Any] = {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _read_processor_name(),
        "cpus": os.cpu_count(),
    }
    with suppress(ValueError, OSError, AttributeError):
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = _run_command(
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    )
    if gpus:
        found["gpus"] = [line.strip() for line in gpus.splitlines() if line.strip()]
        if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
            found["visible_gpus"] = visible
    return {key: value for key, value in found.items() if value}


def _read_processor_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def find_commits(folders: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return commit, origin and uncommitted changes of the git checkouts that contain the folders."""
    inside: dict[Path, set[Path]] = {}
    for folder in {folder.resolve() for folder in folders}:
        checkout = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
        if checkout is not None:
            inside.setdefault(checkout, set()).add(folder)
    found = {}
    for checkout, members in sorted(inside.items()):
        commit = _run_git(checkout, "rev-parse", "HEAD")
        if commit is None:
            continue
        changes = _run_git(checkout, "status", "--porcelain", "--", *_limit_paths(checkout, members))
        about: dict[str, Any] = {"commit": commit, "dirty": None if changes is None else bool(changes)}
        if address := _run_git(checkout, "config", "--get", "remote.origin.url"):
            about["origin"] = redact_assignments(address)
        found[str(checkout)] = about
    return found


def _limit_paths(checkout: Path, folders: set[Path]) -> list[str]:
    """Return the folders, or the whole checkout if they are too many for a command line."""
    return sorted(map(str, folders)) if len(folders) <= 100 else [str(checkout)]


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Run git without running or writing anything in the checkout."""
    return _run_command(["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments])


def _run_command(command: list[str]) -> str | None:
    """Return the output of a program; None if it is missing, fails or times out."""
    program = shutil.which(command[0])
    if program is None:
        return None
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            timeout=_COMMAND_TIMEOUT_S,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
