"""A CPU that announces AMX and cannot execute it does not end the process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.models.hf.loading.cpu_instructions import avoid_unusable_amx


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes of the next probes; negative if a signal ended them."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    codes: list[int] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, codes.pop(0))

    monkeypatch.setattr(subprocess, "run", run)
    return codes


def write_cpu_info(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor : 0\nflags : fpu vme {flags}\n")
    return path


def test_other_instructions_are_used_if_amx_ends_the_process(tmp_path: Path, probes: list[int]) -> None:
    probes.append(-4)
    assert avoid_unusable_amx(write_cpu_info(tmp_path, "avx512f amx_bf16 amx_tile"))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"


@pytest.mark.parametrize("code", [0, 1], ids=["works", "no torch"])
def test_amx_is_used_otherwise(tmp_path: Path, probes: list[int], code: int) -> None:
    probes.append(code)
    assert not avoid_unusable_amx(write_cpu_info(tmp_path, "amx_bf16"))
    assert not probes and "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_nothing_is_tried_without_amx(tmp_path: Path, probes: list[int]) -> None:
    assert not avoid_unusable_amx(write_cpu_info(tmp_path, "avx512_bf16"))
    assert not avoid_unusable_amx(tmp_path / "missing")


def test_a_setting_of_the_user_takes_precedence(
    tmp_path: Path, probes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert not avoid_unusable_amx(write_cpu_info(tmp_path, "amx_bf16"))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
