"""Throughput of models that answer synthetic requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.models.remote.scripted_server import Act, ReceivedRequest, replying, start_scripted_server

from assay.core.errors import AssayError, InvalidOption
from assay.core.ports import ComputeCounters, ComputeLimits, Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response, Usage
from assay.engine.benchmarking.measurement import ModelBenchmark, benchmark_model, read_peak_memory
from assay.engine.benchmarking.workloads import WorkloadSize
from assay.models.dummy import DummyModel
from assay.models.oracle import OracleModel
from assay.models.remote.openai import OpenAIModel
from assay.testing import ScriptedModel

SIZE = WorkloadSize(requests=8, prompt_words=10, output_tokens=4)


def bench(model: Any, *workloads: str, size: WorkloadSize = SIZE) -> ModelBenchmark:
    return asyncio.run(benchmark_model(model, size, workloads=workloads))


class MeteredModel(ScriptedModel):
    """Computes 100 tokens per request on a device that could compute 1000 tokens per second."""

    def __init__(self, rate: float | None = 2e6) -> None:
        super().__init__(lambda request: Response(request_id=request.id, value="a", usage=Usage(90, 10)))
        self.meter = _Meter(self, rate)

    async def start_compute_meter(self) -> _Meter:
        return self.meter

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        await asyncio.sleep(0.02)
        async for outcome in super().answer(window):
            yield outcome


class _Meter:
    def __init__(self, model: MeteredModel, rate: float | None) -> None:
        self.limits = ComputeLimits(
            device="cpu",
            dtype="float32",
            parameters=1000,
            matmul_flops_per_s=rate,
            unknown_because="" if rate else "why",
        )
        self.closed = False
        self._model = model
        self._read = 0

    def read(self) -> ComputeCounters:
        count, self._read = len(self._model.asked) - self._read, len(self._model.asked)
        return ComputeCounters(computed_tokens=100 * count, model_seconds=0.01, peak_device_bytes=7)

    def close(self) -> None:
        self.closed = True


def test_rates_are_counts_divided_by_the_time() -> None:
    found = bench(DummyModel(latency_s=0.005, window=4), "generate").workloads[0]
    assert (found.workload, found.requests, found.failures) == ("generate", 8, 0)
    assert found.seconds >= 8 * 0.005 / 4
    assert found.requests_per_s == pytest.approx(8 / found.seconds)
    assert found.output_tokens is not None and found.output_tokens_per_s is not None
    assert found.output_tokens_per_s == pytest.approx(found.output_tokens / found.seconds)
    assert found.peak_memory_bytes is not None and found.peak_memory_bytes > 2**20
    assert (found.ideal, found.latency, found.max_in_flight) == (None, None, None)


def test_everything_that_a_local_model_supports_is_measured() -> None:
    found = bench(DummyModel())
    assert [one.workload for one in found.workloads] == ["generate", "likelihood", "rolling"]
    assert found.workloads[1].input_tokens is None  # it counts no tokens of likelihoods
    assert found.notes == ["the ideal rate is unknown: the model does not report what it computes"]


def test_the_ideal_of_a_metered_model_is_the_rate_of_its_device() -> None:
    model = MeteredModel()
    report = bench(model, "generate")
    found = report.workloads[0]
    assert found.computed_tokens == 800  # without those of the warm-up
    assert found.ideal is not None and (found.ideal.rate, found.ideal.unit) == (1000.0, "tokens/s")
    assert found.ideal.share == pytest.approx(800 / found.seconds / 1000)
    assert found.busy_share == pytest.approx(0.01 / found.seconds)
    assert found.peak_device_bytes == 7
    assert (found.input_tokens, found.output_tokens) == (720, 80)
    assert report.limits == model.meter.limits and not report.notes
    assert model.meter.closed


def test_an_unknown_ideal_has_a_reason() -> None:
    report = bench(MeteredModel(rate=None), "generate")
    assert report.workloads[0].ideal is None
    assert report.notes == ["the ideal rate is unknown: why"]


@pytest.mark.server
def test_the_ideal_of_a_server_is_its_calls_in_flight_by_the_latency_of_one() -> None:
    async def reply(request: ReceivedRequest) -> list[Act]:
        message = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "model": "m"}
        usage = {"prompt_tokens": 12, "completion_tokens": 3}
        return [0.02, *replying({**message, "usage": usage})]

    async def measure() -> tuple[ModelBenchmark, int]:
        async with start_scripted_server(reply) as server:
            model = OpenAIModel(model="m", base_url=f"{server.url}/v1", probe=False, num_concurrent=4)
            return await benchmark_model(
                model, WorkloadSize(requests=16, prompt_words=5, output_tokens=4)
            ), len([one for one in server.asked if one.method == "POST"])

    report, asked = asyncio.run(measure())
    found = report.workloads[0]
    assert report.is_remote and found.workload == "chat"
    assert asked == 16 + 3
    assert (found.input_tokens, found.output_tokens) == (16 * 12, 16 * 3)
    assert found.latency is not None and found.ideal is not None and found.max_in_flight is not None
    assert found.latency.single >= 0.02
    assert 0.02 <= found.latency.p50 <= found.latency.p90 <= found.latency.p99
    assert 2 <= found.max_in_flight <= 4
    assert found.ideal.rate == pytest.approx(found.max_in_flight / found.latency.single)
    assert 0 < found.ideal.share == pytest.approx(found.requests_per_s / found.ideal.rate)
    assert found.busy_share is not None and 0.2 < found.busy_share <= 1


def test_failed_requests_are_noted_and_not_counted() -> None:
    def answer(request: Request) -> Any:
        if request.document % 2:
            return Failure(request_id=request.id, kind="timeout", message="too slow")
        return "a"

    report = bench(ScriptedModel(answer), "generate")
    assert (report.workloads[0].requests, report.workloads[0].failures) == (4, 4)
    assert "generate: 4 of 8 requests failed: timeout: too slow" in report.notes


def test_a_model_without_an_answer_is_an_error() -> None:
    def fail(request: Request) -> Any:
        return Failure(request_id=request.id, kind="timeout", message="too slow")

    with pytest.raises(
        AssayError, match="all 8 requests of the workload `generate` failed: timeout: too slow"
    ):
        bench(ScriptedModel(fail), "generate")


def test_a_model_that_raises_is_an_error_without_the_hint_of_a_run() -> None:
    def fail(request: Request) -> Any:
        assert isinstance(request, Generate)
        raise ValueError("broken")

    with pytest.raises(AssayError, match="broken") as caught:
        bench(ScriptedModel(fail, window=1), "generate")
    assert "saved" not in caught.value.hint


class MediaModel(ScriptedModel):
    @property
    def traits(self) -> Traits:
        return Traits(abilities=frozenset({"generate", "image"}), needs=frozenset({"image"}))


@pytest.mark.parametrize(
    ("model", "message"), [(MediaModel(), "needs image in every request"), (OracleModel(), "targets")]
)
def test_models_that_cannot_answer_texts_are_refused(model: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        bench(model)


def test_peak_memory_grows() -> None:
    before = read_peak_memory()
    assert before is not None
    block = bytearray(before)
    block[::4096] = b"x" * len(block[::4096])
    after = read_peak_memory()
    assert after is not None and after > before
