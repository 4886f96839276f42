"""Spans: what is in them, and what must never be."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.adapters.tracing import LONGEST_NOTE, OpenTelemetryTracer, TracingUnavailable, exporting_tracer
from gateway.ports import NO_TRACER, Operation


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> OpenTelemetryTracer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetryTracer(provider)


def test_spans_have_names_notes_and_parents(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    with tracer.span(Operation.RESUME) as span:
        with tracer.span(Operation.CLAIM):
            pass
        span.note("outcome", "failed_over")
        span.note("requests", 3)

    claim, resume = exporter.get_finished_spans()
    assert (claim.name, resume.name) == ("gateway claim", "gateway resume")
    assert claim.parent is not None
    assert resume.context is not None
    assert claim.parent.span_id == resume.context.span_id
    assert dict(resume.attributes or {}) == {"gateway.outcome": "failed_over", "gateway.requests": 3}


def test_what_an_exception_says_stays_out_of_spans(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="alice"), tracer.span(Operation.CONNECT):
        raise ValueError("the principal alice said something")

    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes or {}) == {"error.type": "ValueError"}
    assert not span.events
    assert "alice" not in span.to_json()


def test_notes_are_bounded(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    with tracer.span(Operation.CONNECT) as span:
        span.note("long", "x" * 10_000)

    (finished,) = exporter.get_finished_spans()
    assert (finished.attributes or {})["gateway.long"] == "x" * LONGEST_NOTE


def test_without_a_tracer_everything_passes() -> None:
    with NO_TRACER.span(Operation.PUBLISH) as span:
        span.note("requests", 1)
    with pytest.raises(ValueError, match="through"), NO_TRACER.span(Operation.PUBLISH):
        raise ValueError("through")


def test_a_missing_library_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingUnavailable, match="install the extra `otel` of the gateway's package"):
        exporting_tracer("n1")
