"""Linear layers that oneDNN computes give the results of torch and keep their parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from assay.models.hf.loading import packed_linear
from assay.models.hf.loading.packed_linear import pack_linear_layers
from assay.models.hf.onednn import is_onednn_faster

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use oneDNN on every processor of the tests."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch has no oneDNN")
    monkeypatch.setattr(packed_linear, "is_onednn_faster", lambda: True)


def make_model() -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50, 40), torch.nn.Linear(40, 96), torch.nn.Linear(96, 40), torch.nn.Linear(40, 50, bias=False)
    )  # fmt: skip
    model[3].weight = model[0].weight  # a tied head
    return model.eval()


@pytest.mark.parametrize("max_bytes", [1 << 30, 0, 96 * 40 * 4])
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 17)])
def test_results_are_those_of_torch(max_bytes: int, shape: tuple[int, int]) -> None:
    model = make_model()
    tokens = torch.arange(shape[0] * shape[1]).reshape(shape) % 50
    with torch.inference_mode():
        expected = model(tokens)
        assert pack_linear_layers(model, max_bytes=max_bytes) == 3
        assert (model(tokens) - expected).abs().max() < 1e-5


def test_weights_are_copied_within_the_limit() -> None:
    model = make_model()
    pack_linear_layers(model, max_bytes=96 * 40 * 4)
    assert [layer.packed is not None for layer in model[1:]] == [True, False, False]


def test_parameters_and_their_names_stay() -> None:
    model = make_model()
    before = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    pack_linear_layers(model)
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == before
    assert model[3].weight is model[0].weight


def test_a_layer_with_two_parents_is_packed_once() -> None:
    layer = torch.nn.Linear(8, 8)
    model = torch.nn.ModuleList([torch.nn.Sequential(layer), torch.nn.Sequential(layer)])
    assert pack_linear_layers(model) == 1
    assert model[0][0] is model[1][0] is not layer


def test_other_types_and_hooked_layers_are_left_unchanged() -> None:
    half, hooked = torch.nn.Linear(8, 8, dtype=torch.bfloat16), torch.nn.Linear(8, 8)
    hooked._hf_hook = object()  # what accelerate adds to layers whose weights it moves
    model = torch.nn.Sequential(half, hooked)
    assert pack_linear_layers(model) == 0
    assert model[0] is half and model[1] is hooked


@pytest.mark.parametrize(
    ("vendor", "flags", "faster"),
    [
        ("AuthenticAMD", "avx2 avx512f", True),
        ("AuthenticAMD", "avx2", False),
        ("GenuineIntel", "avx2 avx512f", False),
    ],
)
def test_the_processor_decides(tmp_path: Path, vendor: str, flags: str, faster: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"vendor_id : {vendor}\nflags : fpu {flags}\n")
    assert is_onednn_faster(path) is faster
    assert not is_onednn_faster(tmp_path / "missing")
