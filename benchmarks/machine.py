"""Describe the machine and package versions of a measurement, without host names or paths."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import find_peer, inspect_environment

ROOT = Path(__file__).resolve().parents[1]
OURS = ("assay", "numpy", "datasets", "torch", "transformers", "ray")
PEERS = {
    "lm_eval": ("lm_eval", "torch", "transformers", "datasets"),
    "lmms_eval": ("lmms_eval", "openai"),
    "inspect_ai": ("inspect_ai", "openai"),
    "lighteval": ("lighteval", "torch", "transformers", "datasets"),
    "packages": ("anthropic", "litellm", "openai", "aiohttp", "httpx", "niquests", "pycurl", "onnxruntime"),
}


def describe_machine() -> dict[str, str | int]:
    """Return processor, memory, Python version and system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _read_processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _read_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def collect_versions() -> dict[str, dict[str, str]]:
    """Return the versions of the compared packages, by environment; missing packages are left out."""
    found = {"assay": inspect_environment(sys.executable, "assay", *OURS)["versions"]}
    for name, packages in PEERS.items():
        if python := find_peer(name):
            found[name] = inspect_environment(python, name, *packages)["versions"]
    return {name: {key: value for key, value in one.items() if value} for name, one in found.items()}


def describe_commit() -> str:
    """Return the current commit, with a `+` if the sources have uncommitted changes."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "src", "benchmarks/*.py") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def measure_busy_share(seconds: float = 0.4) -> float | None:
    """Return the share of CPU time in use by other processes, or None if /proc/stat is not available."""

    def read_times() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]

    try:
        everything, idle = read_times()
        time.sleep(seconds)
        everything_after, idle_after = read_times()
    except OSError:
        return None
    return round(1 - (idle_after - idle) / max(1, everything_after - everything), 2)


def collect_environment() -> dict[str, Any]:
    """Return the machine, versions and commit that results.json stores with each benchmark."""
    return {"machine": describe_machine(), "versions": collect_versions(), "commit": describe_commit()}
