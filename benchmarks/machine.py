"""Where and with what something was measured: no host names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import find_peer, look

ROOT = Path(__file__).resolve().parents[1]
OURS = ("assay", "numpy", "datasets", "torch", "transformers", "ray")
PEERS = {
    "lm_eval": ("lm_eval", "torch", "transformers", "datasets"),
    "lmms_eval": ("lmms_eval", "openai"),
    "packages": ("anthropic", "litellm", "openai", "aiohttp", "httpx", "onnxruntime"),
}


def machine() -> dict[str, str | int]:
    """Processors, memory, Python and system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, dict[str, str]]:
    """Of what is compared, by environment; what an environment has not is left out."""
    found = {"assay": look(sys.executable, "assay", *OURS)["versions"]}
    for name, packages in PEERS.items():
        if python := find_peer(name):
            found[name] = look(python, name, *packages)["versions"]
    return {name: {key: value for key, value in one.items() if value} for name, one in found.items()}


def commit() -> str:
    """The commit of this checkout, with a `+` where the sources differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "src", "benchmarks/*.py") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def busy_share(seconds: float = 0.4) -> float | None:
    """Which share of the processors is at work for others right now; None where the system does not tell."""

    def times() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]

    try:
        everything, idle = times()
        time.sleep(seconds)
        everything_after, idle_after = times()
    except OSError:
        return None
    return round(1 - (idle_after - idle) / max(1, everything_after - everything), 2)


def surroundings() -> dict[str, Any]:
    """All that is written beside the measurements of one benchmark."""
    return {"machine": machine(), "versions": versions(), "commit": commit()}
