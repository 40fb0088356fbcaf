"""Avoid matrix instructions that the CPU announces and cannot execute.

Some virtual machines announce Intel's AMX, but the first product of bfloat16 matrices ends the process with "Illegal
instruction". oneDNN, which computes these products for torch, can be told to use other instructions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["avoid_unusable_amx"]

_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_BEST_WITHOUT_AMX = "AVX512_CORE_FP16"
_PROBE = """
import torch
weights = torch.ones(64, 64, dtype=torch.bfloat16)
torch.nn.functional.linear(weights, weights)
"""


@cache
def avoid_unusable_amx(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell oneDNN not to use AMX if a process that uses it is killed; return whether it was.

    Call it before the first product of bfloat16 matrices. It takes seconds where the CPU announces AMX, else nothing. A setting
    of the user takes precedence.
    """
    if any(name in os.environ for name in _SETTINGS) or not _announces_amx(cpu_info):
        return False
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False)
    if probe.returncode >= 0:  # it ended by itself
        return False
    os.environ[_SETTINGS[0]] = _BEST_WITHOUT_AMX
    return True


def _announces_amx(cpu_info: Path) -> bool:
    try:
        return "amx_bf16" in cpu_info.read_text(encoding="utf-8")
    except OSError:  # not Linux
        return False
