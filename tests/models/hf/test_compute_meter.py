"""Tokens that a torch model computes, and the rate of its device."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("torch")

import torch
from tests.models.hf.hf_requests import generate, likelihood
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

from assay.core.ports import ComputeCounters, ComputeLimits, SupportsComputeMeter
from assay.models.hf import HfModel, compute_meter
from assay.models.hf.compute_meter import measure_matmul_rate

pytestmark = pytest.mark.torch


def test_the_meter_counts_computed_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_meter, "CALIBRATION_S", 0.0)
    monkeypatch.setattr(compute_meter, "_CPU_SIZE", 64)

    async def measure() -> tuple[ComputeLimits, list[ComputeCounters]]:
        model = HfModel(pretrained=str(tiny_checkpoint()), dtype="float32", batch_size=2)
        assert isinstance(model, SupportsComputeMeter)
        await model.open()
        try:
            meter = await model.start_compute_meter()
            assert meter is not None
            counters = [meter.read()]
            shared = [likelihood("the sky is " * 10, end) for end in (" blue", " what", " the cat")]
            for window in (shared, [generate("the cat", max_gen_toks=5)]):
                _ = [outcome async for outcome in model.answer(window)]
                counters.append(meter.read())
            meter.close()
            _ = [outcome async for outcome in model.answer([generate("the sky", max_gen_toks=5)])]
            return meter.limits, [*counters, meter.read()]
        finally:
            await model.close()

    limits, (idle, scored, generated, closed) = asyncio.run(measure())
    assert (limits.device, limits.dtype, limits.is_asynchronous) == ("cpu", "float32", False)
    assert limits.parameters > 1000 and limits.matmul_flops_per_s and not limits.unknown_because
    assert (idle.computed_tokens, idle.peak_device_bytes) == (0, None)
    assert 30 < scored.computed_tokens < 60  # the shared prefix once, not three times
    assert 0 < generated.computed_tokens < 20 and generated.model_seconds > 0
    assert closed.computed_tokens == 0


def test_the_rate_is_the_operations_by_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_meter, "_CPU_SIZE", 128)
    rate = measure_matmul_rate(torch.device("cpu"), torch.float32, seconds=0.01)
    assert 1e8 < rate < 1e14


def test_encoder_decoder_models_have_no_rate() -> None:
    async def measure() -> ComputeLimits:
        model = HfModel(pretrained=str(tiny_checkpoint("t5")), dtype="float32")
        await model.open()
        try:
            meter = await model.start_compute_meter()
            assert meter is not None
            return meter.limits
        finally:
            await model.close()

    limits = asyncio.run(measure())
    assert limits.matmul_flops_per_s is None
    assert limits.unknown_because == "encoder and decoder read different tokens"
