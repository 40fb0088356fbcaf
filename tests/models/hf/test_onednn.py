"""When products use oneDNN, and that they are right."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from assay.models.hf.onednn import is_onednn_faster, multiply_transposed, pack_weight

pytestmark = pytest.mark.torch

AMD = "vendor_id : AuthenticAMD\nflags : fpu avx2 avx512f avx512bw\n"
has_onednn = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AMD, has_onednn),
        (AMD.replace("AuthenticAMD", "GenuineIntel"), False),
        (AMD.replace("avx512f avx512bw", ""), False),
        ("", False),
    ],
)
def test_onednn_is_chosen_by_the_kind_of_processor(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert is_onednn_faster(tmp_path / "cpuinfo") is expected


def test_onednn_is_not_chosen_without_a_description_of_the_processor(tmp_path: Path) -> None:
    assert is_onednn_faster(tmp_path / "missing") is False


@pytest.mark.skipif(not has_onednn, reason="torch has no oneDNN")
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_those_of_torch(rows: int, has_bias: bool) -> None:
    torch.manual_seed(rows)
    left, weight, bias = torch.randn(rows, 24), torch.randn(17, 24), torch.randn(17) if has_bias else None
    expected = torch.nn.functional.linear(left, weight, bias)
    with torch.inference_mode():
        for one in (weight, pack_weight(weight)):
            assert (multiply_transposed(left, one, bias) - expected).abs().max() < 1e-4
