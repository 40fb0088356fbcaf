"""Measure the throughput of a model: workloads go through the queue that runs use, and their outcomes are timed."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.core.errors import AssayError, InvalidOption
from assay.core.ports import (
    ComputeCounters,
    ComputeLimits,
    ComputeMeter,
    Model,
    SupportsComputeMeter,
    SupportsPricing,
    SupportsQueueing,
    SupportsTargets,
)
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.engine.benchmarking.workloads import WorkloadSize, build_requests, select_workloads
from assay.engine.planning.setup.model_setup import probe_model
from assay.engine.running.model_queue import Backlog, UnsavedAnswerLimiter, ask, sort_window
from assay.engine.running.services import first_error, open_model

__all__ = ["Ideal", "Latency", "ModelBenchmark", "WorkloadResult", "benchmark_model"]

SINGLE_CALLS = 3
"""Calls, one after the other, that measure the latency of a remote model without load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds from the start of a call to its answer."""

    single: float
    """Mean of calls without others in flight."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal:
    """The highest rate that is possible."""

    rate: float
    unit: str
    """`tokens/s` or `requests/s`."""

    reached: float
    """The measured rate in the same unit."""

    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """The measurement of one workload. Unknown numbers are None."""

    workload: str
    requests: int
    failures: int
    seconds: float
    requests_per_s: float
    input_tokens: int | None
    output_tokens: int | None
    """Generated tokens; for likelihoods, the tokens of the continuations. Whole texts are input."""

    input_tokens_per_s: float | None
    output_tokens_per_s: float | None
    computed_tokens: int | None
    """Tokens that went through a local model: prefix sharing saves some, padding adds some."""

    busy_share: float | None
    """Share of the time in which the model computed, or in which at least one call was in flight."""

    latency: Latency | None
    """Of remote models."""

    max_in_flight: int | None
    """Largest number of requests to a remote model at the same time. One call can contain several likelihoods."""

    ideal: Ideal | None
    peak_memory_bytes: int | None
    """Largest resident memory of this process so far."""

    peak_device_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBenchmark:
    """The measurements of a model."""

    model: str
    is_remote: bool
    open_seconds: float
    limits: ComputeLimits | None
    workloads: list[WorkloadResult]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


async def benchmark_model(
    model: Model,
    size: WorkloadSize,
    *,
    workloads: Sequence[str] = (),
    on_start: Callable[[str], None] = lambda workload: None,
) -> ModelBenchmark:
    """Open a model, send it the workloads one after the other, and close it.

    Raises:
        AssayError: The model cannot be measured or opened, or a workload has no answer.
    """
    _check_measurable(model)
    notes = list(await probe_model(model))
    is_remote = isinstance(model, (SupportsQueueing, SupportsPricing))
    names = select_workloads(model.traits, tuple(workloads), is_remote=is_remote)
    if not names:
        raise InvalidOption(f"the model `{model.name}` supports no workload", where="--model")
    started = time.perf_counter()
    meter: ComputeMeter | None = None
    try:
        await open_model(model)
        opened = time.perf_counter() - started
        meter = await model.start_compute_meter() if isinstance(model, SupportsComputeMeter) else None
        results = []
        for name in names:
            on_start(name)
            results.append(await _measure(model, name, size, meter, is_remote=is_remote, notes=notes))
    finally:
        if meter is not None:
            meter.close()
        await model.close()
    limits = None if meter is None else meter.limits
    notes += _describe_limits(limits, is_remote=is_remote)
    return ModelBenchmark(
        model=model.name,
        is_remote=is_remote,
        open_seconds=opened,
        limits=limits,
        workloads=results,
        notes=notes,
    )


def _check_measurable(model: Model) -> None:
    traits = model.traits
    if traits.interactive:
        raise InvalidOption(
            f"the answers of `{model.name}` come from the terminal: its speed cannot be measured",
            where="--model",
        )
    if isinstance(model, SupportsTargets):
        raise InvalidOption(
            f"`{model.name}` answers with the targets of a task; the workloads have none", where="--model"
        )
    if traits.needs:
        raise InvalidOption(
            f"`{model.name}` needs {', '.join(sorted(traits.needs))} in every request; the workloads are texts",
            where="--model",
            hint="measure a run of a task with such media instead: `assay run --limit 100`",
        )


def _describe_limits(limits: ComputeLimits | None, *, is_remote: bool) -> list[str]:
    if is_remote:
        return []
    if limits is None:
        return ["the ideal rate is unknown: the model does not report what it computes"]
    notes = [f"the ideal rate is unknown: {limits.unknown_because}"] if limits.unknown_because else []
    if limits.is_asynchronous:
        notes.append(f"{limits.device} computes asynchronously: the share of busy time is a lower bound")
    return notes


class _OutcomeTimes:
    """Receives outcomes with the time of their arrival."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.failures: list[Failure] = []
        self.calls: list[tuple[float, float]] = []
        """Start and end of each answered call, if the model reports its duration."""

    def receive(self, outcome: Outcome) -> None:
        now = time.perf_counter()
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
            return
        self.responses.append(outcome)
        if outcome.seconds is not None:
            self.calls.append((now - outcome.seconds, now))


async def _measure(
    model: Model,
    workload: str,
    size: WorkloadSize,
    meter: ComputeMeter | None,
    *,
    is_remote: bool,
    notes: list[str],
) -> WorkloadResult:
    single = await _measure_single_calls(model, workload, size, SINGLE_CALLS if is_remote else 1)
    requests = build_requests(workload, size)
    times = _OutcomeTimes()
    if meter is not None:
        meter.read()
    started = time.perf_counter()
    await _send(model, requests, times)
    seconds = max(time.perf_counter() - started, 1e-9)
    counters = None if meter is None else meter.read()
    if not times.responses:
        failure = times.failures[0]
        raise AssayError(
            f"all {len(requests)} requests of the workload `{workload}` failed: {failure.kind}: {failure.message}",
            where="--model",
            hint="`assay run --tasks quickstart --limit 1` with this model shows whether it works",
        )
    if times.failures:
        first = times.failures[0]
        notes.append(
            f"{workload}: {len(times.failures)} of {len(requests)} requests failed: {first.kind}: {first.message}"
        )
    return _summarize(
        workload, times, seconds, counters, meter, single if is_remote else None, model.traits.in_flight
    )


async def _measure_single_calls(model: Model, workload: str, size: WorkloadSize, count: int) -> float:
    """Return the mean latency of calls one after the other. They also warm up the model."""
    requests = sorted(
        build_requests(workload, size, seed=1), key=lambda one: (len(one.prompt.text), one.document)
    )
    positions = sorted({(2 * number + 1) * len(requests) // (2 * count) for number in range(count)})
    spent = []
    for position in positions:  # a short, a middle and a long one
        times = _OutcomeTimes()
        started = time.perf_counter()
        await _send(model, [requests[position]], times)
        elapsed = time.perf_counter() - started
        spent.append(times.calls[0][1] - times.calls[0][0] if times.calls else elapsed)
    return sum(spent) / len(spent)


async def _send(model: Model, requests: Sequence[Request], times: _OutcomeTimes) -> None:
    """Send requests through the queue of a run; each outcome counts as stored at once."""
    backlog = Backlog(len(requests))
    await backlog.put(requests if model.traits.keeps_order else sort_window(list(requests)))
    await backlog.close()
    try:
        await ask(model, backlog, times.receive, UnsavedAnswerLimiter(model))
    except BaseExceptionGroup as several:
        error = first_error(several)
        if (
            type(error) is AssayError and error.__cause__ is not None
        ):  # its hint is about the answers of a run
            raise AssayError(error.what, where="--model") from error.__cause__
        raise error from None


def _summarize(
    workload: str,
    times: _OutcomeTimes,
    seconds: float,
    counters: ComputeCounters | None,
    meter: ComputeMeter | None,
    single: float | None,
    max_calls: int,
) -> WorkloadResult:
    count = len(times.responses)
    usages = [one.usage for one in times.responses if one.usage is not None]
    is_counted = len(usages) == count
    read = sum(one.input_tokens for one in usages) if is_counted else None
    written = sum(one.output_tokens for one in usages) if is_counted else None
    if workload == "rolling" and read is not None and written is not None:
        read, written = read + written, None  # some models count the tokens of the text as a continuation
    latency = max_in_flight = ideal = None
    if single is not None and times.calls:
        latency = _summarize_latencies(times.calls, single)
        # answers arrive here a little after the end of their calls, so that more calls seem to overlap
        max_in_flight = min(count_overlapping(times.calls), max_calls)
        if single > 0:
            ideal = _compare(max_in_flight / single, count / seconds, "requests/s")
    elif meter is not None and counters is not None and meter.limits.matmul_flops_per_s:
        rate = meter.limits.matmul_flops_per_s / (2 * meter.limits.parameters)
        ideal = _compare(rate, counters.computed_tokens / seconds, "tokens/s")
    if counters is not None:
        busy: float | None = min(1.0, counters.model_seconds / seconds)
    else:
        busy = min(1.0, measure_union(times.calls) / seconds) if times.calls else None
    return WorkloadResult(
        workload=workload,
        requests=count,
        failures=len(times.failures),
        seconds=seconds,
        requests_per_s=count / seconds,
        input_tokens=read,
        output_tokens=written,
        input_tokens_per_s=None if read is None else read / seconds,
        output_tokens_per_s=None if written is None else written / seconds,
        computed_tokens=None if counters is None else counters.computed_tokens,
        busy_share=busy,
        latency=latency,
        max_in_flight=max_in_flight,
        ideal=ideal,
        peak_memory_bytes=read_peak_memory(),
        peak_device_bytes=None if counters is None else counters.peak_device_bytes,
    )


def _compare(rate: float, reached: float, unit: str) -> Ideal:
    return Ideal(rate=rate, unit=unit, reached=reached, share=reached / rate)


def _summarize_latencies(calls: Sequence[tuple[float, float]], single: float) -> Latency:
    spent = sorted(end - start for start, end in calls)

    def find(share: float) -> float:
        return spent[max(0, math.ceil(share * len(spent)) - 1)]

    return Latency(single=single, p50=find(0.5), p90=find(0.9), p99=find(0.99))


def count_overlapping(calls: Sequence[tuple[float, float]]) -> int:
    """Return the largest number of intervals that contain the same moment.

    >>> count_overlapping([(0.0, 2.0), (1.0, 3.0), (2.0, 4.0)])
    2
    """
    events = sorted([(start, 1) for start, _ in calls] + [(end, -1) for _, end in calls])
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def measure_union(calls: Sequence[tuple[float, float]]) -> float:
    """Return the time that at least one interval covers.

    >>> measure_union([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    covered = 0.0
    reached = -math.inf
    for start, end in sorted(calls):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def read_peak_memory() -> int | None:
    """Return the largest resident memory of this process in bytes; None on systems that do not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
