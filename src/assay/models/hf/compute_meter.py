"""What a torch model computes, and how fast its device could: the utilisation of `assay bench model`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.core.ports import ComputeCounters, ComputeLimits
from assay.models.hf.onednn import is_onednn_faster, multiply_transposed, pack_weight

__all__ = ["TorchComputeMeter", "measure_matmul_rate"]

CALIBRATION_S = 0.3
"""How long matrices are multiplied to measure the rate of a device."""

_CPU_SIZE, _GPU_SIZE = 1024, 8192
"""Rows and columns of the matrices. A smaller product does not fill a GPU."""


class TorchComputeMeter:
    """Counts the tokens that a torch model computes, with the time in it and the memory of its device.

    Create it in the thread of the model: the number of CPU threads can differ between threads.
    """

    def __init__(self, model: Any, read_model_seconds: Callable[[], float]) -> None:
        self._read_model_seconds = read_model_seconds
        self._device = next(model.parameters()).device
        self._tokens = 0
        self._seconds = read_model_seconds()
        self.limits = _find_limits(model)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # not the model itself: the layers are also called without the output layer
        self._hook = base.base_model.register_forward_pre_hook(self._count, with_kwargs=True)
        self._reset_peak()

    def _count(self, module: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        ids = keywords.get("input_ids", arguments[0] if arguments else None)
        embedded = keywords.get("inputs_embeds")
        if ids is not None:
            self._tokens += ids.numel()
        elif embedded is not None:
            self._tokens += embedded.shape[0] * embedded.shape[1]

    def read(self) -> ComputeCounters:
        """Return what was computed since the last call."""
        seconds, previous = self._read_model_seconds(), self._seconds
        tokens, self._tokens = self._tokens, 0
        self._seconds = seconds
        peak = self._read_peak()
        self._reset_peak()
        return ComputeCounters(
            computed_tokens=tokens, model_seconds=seconds - previous, peak_device_bytes=peak
        )

    def close(self) -> None:
        """Stop counting."""
        self._hook.remove()

    def _read_peak(self) -> int | None:
        if self._device.type != "cuda":
            return None
        import torch

        return int(sum(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count()))))

    def _reset_peak(self) -> None:
        if self._device.type == "cuda":
            import torch

            for number in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(number)


def _find_limits(model: Any) -> ComputeLimits:
    """Measure the device of a model. The rate is unknown for quantized, distributed and encoder-decoder models."""
    parameters = list(model.parameters())
    devices = sorted({str(one.device) for one in parameters})
    dtype = model.dtype
    why = ""
    if len(devices) > 1:
        why = f"the model is on several devices ({', '.join(devices)})"
    elif getattr(model, "is_quantized", False) or any(not one.is_floating_point() for one in parameters):
        why = "the weights are quantized"
    elif getattr(model.config, "is_encoder_decoder", False):
        why = "encoder and decoder read different tokens"
    return ComputeLimits(
        device=", ".join(devices),
        dtype=str(dtype).removeprefix("torch."),
        parameters=sum(one.numel() for one in parameters),
        matmul_flops_per_s=None if why else measure_matmul_rate(parameters[0].device, dtype),
        unknown_because=why,
        is_asynchronous=parameters[0].device.type != "cpu",
    )


def measure_matmul_rate(device: Any, dtype: Any, *, seconds: float | None = None) -> float:
    """Return the floating-point operations per second of large matrix products: the best of several, without the first."""
    import torch

    size = _CPU_SIZE if device.type == "cpu" else _GPU_SIZE
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None) or (lambda: None)
    while True:
        try:
            left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
            multiply = _choose_product(left, right)
            multiply()
            synchronize()
            break
        except torch.OutOfMemoryError:
            if size <= _CPU_SIZE:
                raise
            size //= 2
    best = float("inf")
    end = time.perf_counter() + (CALIBRATION_S if seconds is None else seconds)
    while best == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        multiply()
        synchronize()
        best = min(best, time.perf_counter() - started)
    return float(2 * size**3 / best)


def _choose_product(left: Any, right: Any) -> Callable[[], Any]:
    """Return a function that multiplies two matrices in the way that the linear layers of a model do."""
    import torch

    if left.device.type == "cpu" and left.dtype == torch.float32 and is_onednn_faster():
        packed = pack_weight(right)
        return lambda: multiply_transposed(left, packed)
    result = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=result)
