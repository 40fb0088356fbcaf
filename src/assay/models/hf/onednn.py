"""Products of float32 matrices with oneDNN, for CPUs on which MKL leaves half of the processor unused.

torch multiplies float32 matrices with MKL, which uses AVX-512 only on processors of Intel. oneDNN, which torch contains too,
uses it on every processor that has it: on an AMD EPYC with Zen 5 cores, a product takes less than half the time
(`benchmarks/notes/local_models.md`). Results differ only in the order of summation.

The choice depends on the kind of processor and not on measured times, so that it is the same in every run on a machine.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["is_onednn_faster", "multiply_transposed", "pack_weight"]

_TYPICAL_ROWS = 512
"""The number of rows that the layout of packed weights is chosen for. oneDNN prefers the same layout from 2 rows on."""


@cache
def is_onednn_faster(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU has AVX-512 and is not from Intel, and this torch offers the functions of this module."""
    import torch

    operators = torch.ops.mkldnn
    return (
        _has_avx512_without_intel(cpu_info)
        and torch.backends.mkldnn.is_available()
        and hasattr(operators, "_linear_pointwise")
        and hasattr(operators, "_reorder_linear_weight")
    )


def _has_avx512_without_intel(cpu_info: Path) -> bool:
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False
    return "avx512f" in text and "GenuineIntel" not in text


def multiply_transposed(rows: Any, weight: Any, bias: Any = None) -> Any:
    """Return `rows @ weight.T + bias`. The weight is a plain or a packed matrix."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


def pack_weight(weight: Any) -> Any:
    """Return a copy of a weight in the layout that oneDNN reads fastest, which matters most for few rows."""
    import torch

    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _TYPICAL_ROWS)
