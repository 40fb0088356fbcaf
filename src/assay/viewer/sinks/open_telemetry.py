"""The sink `otel`: a run is a trace, each task a span; progress counters are metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from assay.core.errors import InvalidOption
from assay.viewer.sinks import SINKS
from assay.viewer.sinks.tracker_metrics import build_final_metrics, build_progress_metrics, import_package

__all__ = ["OpenTelemetrySink"]

_EXPORTERS = ("otlp", "console")


@SINKS.register("otel")
class OpenTelemetrySink:
    """Send traces and metrics by OTLP: `--sink otel,endpoint=http://localhost:4318` (default: OTEL_EXPORTER_OTLP_ENDPOINT)."""

    def __init__(self, *, endpoint: str = "", service: str = "assay", exporter: str = "otlp") -> None:
        if exporter not in _EXPORTERS:
            raise InvalidOption(
                f"unknown exporter `{exporter}`", where="--sink", hint=f"use one of: {', '.join(_EXPORTERS)}"
            )
        import_package("opentelemetry.sdk", "opentelemetry-sdk")
        if exporter == "otlp":
            import_package("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http")
        self._endpoint, self._service, self._exporter = endpoint.rstrip("/"), service, exporter
        self._traces: Any = None
        self._metrics: Any = None
        self._gauges: dict[str, Any] = {}
        self._run: Any = None
        self._started = 0

    def emit(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "run started":
            self._start(facts)
        elif event == "progress":
            self._measure(build_progress_metrics(facts))
        elif event == "task ended":
            self._span(facts)
        elif event == "run ended":
            self._end(facts)

    def close(self) -> None:
        """Flush and shut down the exporters."""
        if self._traces is not None:
            self._traces.shutdown()
            self._metrics.shutdown()

    def _start(self, facts: Mapping[str, Any]) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        spans, metrics = self._exporters()
        resource = Resource.create({"service.name": self._service})
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        self._metrics = MeterProvider(
            resource=resource, metric_readers=[PeriodicExportingMetricReader(metrics)]
        )
        self._started = time.time_ns()
        self._run = self._traces.get_tracer("assay").start_span(
            "assay run",
            start_time=self._started,
            attributes={
                "assay.run": facts["run_id"],
                "assay.model": facts["model"],
                "assay.tasks": list(facts["tasks"]),
            },
        )

    def _exporters(self) -> tuple[Any, Any]:
        if self._exporter == "console":
            from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter(), ConsoleMetricExporter()
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        if not self._endpoint:
            return OTLPSpanExporter(), OTLPMetricExporter()
        return (
            OTLPSpanExporter(endpoint=f"{self._endpoint}/v1/traces"),
            OTLPMetricExporter(endpoint=f"{self._endpoint}/v1/metrics"),
        )

    def _measure(self, numbers: Mapping[str, float]) -> None:
        meter = self._metrics.get_meter("assay")
        for name, value in numbers.items():
            label = f"assay.{name.replace('/', '.')}"
            if label not in self._gauges:
                self._gauges[label] = meter.create_gauge(label)
            self._gauges[label].set(value)

    def _span(self, facts: Mapping[str, Any]) -> None:
        from opentelemetry.trace import set_span_in_context

        span = self._traces.get_tracer("assay").start_span(
            f"task {facts['task']}",
            context=set_span_in_context(self._run),
            start_time=self._started,
            attributes={"assay.task": facts["task"], "assay.documents": facts["documents"]},
        )
        if facts["score"] is not None:
            span.set_attribute(f"assay.{facts['metric']}", facts["score"])
        span.end()

    def _end(self, facts: Mapping[str, Any]) -> None:
        from opentelemetry.trace import Status, StatusCode

        numbers = build_final_metrics(facts)
        self._measure(numbers)
        for name, value in numbers.items():
            self._run.set_attribute(f"assay.{name.replace('/', '.')}", value)
        self._run.set_attribute("assay.state", facts["state"])
        if facts["state"] == "failed":
            self._run.set_status(Status(StatusCode.ERROR, facts["why"]))
        self._run.end()
