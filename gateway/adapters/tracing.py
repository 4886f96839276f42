"""Spans by OpenTelemetry, sent by OTLP. Where to, and how many, say the standard ``OTEL_…`` variables.

The library is imported only when traces are wanted: it is an extra of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gateway import __version__
from gateway.core.wire.errors import GatewayError
from gateway.ports import Operation, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as TheirSpan

SERVICE: Final = "session-gateway"
"""What the service is called, unless OTEL_SERVICE_NAME says otherwise."""

PREFIX: Final = "gateway."
"""Begins the names of our attributes."""

LONGEST_NOTE: Final = 128
"""Characters of an attribute: more than any id or code has."""

FLUSH_SECONDS: Final = 2.0
"""How long the end of a node waits for its last spans to be sent; what does not leave in time is lost."""

_NAMES: Final[Mapping[Operation, str]] = {operation: f"gateway {operation.value}" for operation in Operation}


class TracingUnavailable(GatewayError):
    """Traces are wanted, and the library for them is not installed.

    Attributes:
        complaint: what is wrong.
        remedy: what to do.
    """

    complaint = "traces is on, but OpenTelemetry is not installed"
    remedy = "install the extra `otel` of the gateway's package, or turn traces off"

    def __init__(self) -> None:
        super().__init__(f"{self.complaint}: {self.remedy}")


class _Notes:
    """A ``Span`` that writes on one of theirs."""

    __slots__ = ("_span",)

    def __init__(self, span: TheirSpan) -> None:
        self._span = span

    def note(self, name: str, value: str | int) -> None:
        """See ``Span``."""
        self._span.set_attribute(PREFIX + name, value[:LONGEST_NOTE] if isinstance(value, str) else value)


class OpenTelemetryTracer:
    """A ``Tracer``.

    Args:
        provider: makes spans and sends them away.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("gateway", __version__)

    @contextmanager
    def span(self, operation: Operation) -> Iterator[Span]:
        """See ``Tracer``."""
        # Exceptions are not recorded with their messages, which may quote what a client has sent.
        with self._tracer.start_as_current_span(
            _NAMES[operation], record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _Notes(span)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                raise

    def close(self) -> None:
        """Send what is left. Blocks for ``FLUSH_SECONDS`` at most, so call it in a thread of its own."""
        self._provider.force_flush(int(FLUSH_SECONDS * 1000))
        self._provider.shutdown()


def check_installed() -> None:
    """Make sure that the extra is installed; begins nothing.

    Raises:
        TracingUnavailable: it is not.
    """
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: PLC0415 - an extra
        import opentelemetry.sdk.trace.export  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise TracingUnavailable from error


def exporting_tracer(node: str) -> OpenTelemetryTracer:
    """Make a tracer that sends spans by OTLP over HTTP, in the background and in batches.

    Args:
        node: the name of this node.

    Raises:
        TracingUnavailable: the extra is not installed.
    """
    check_installed()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra

    # Variables win over what is given here.
    resource = Resource.create({"service.name": SERVICE, "service.instance.id": node, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTracer(provider)
