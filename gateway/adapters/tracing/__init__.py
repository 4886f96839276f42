"""Traces, if the extra ``otel`` is installed."""

from gateway.adapters.tracing.open_telemetry import OpenTelemetryTracer, TracingUnavailable, exporting_tracer

__all__ = ["OpenTelemetryTracer", "TracingUnavailable", "exporting_tracer"]
