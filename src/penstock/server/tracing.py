"""Spans with OpenTelemetry, to a collector that speaks OTLP over HTTP. Imported only where the settings name one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanContext, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.model import tracing
from penstock.model.version import VERSION

_HEADER = "traceparent"


class OpenTelemetry:
    """A ``Tracer``. What has not been exported is bounded by the processor's queue."""

    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({"service.name": "penstock", "service.version": VERSION})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("penstock", VERSION)

    @contextmanager
    def span(self, name: str, facts: Mapping[str, object], parent: object | None, seconds: float) -> Iterator[None]:
        began = time.time_ns() - int(seconds * 1e9) if seconds else None
        said = {f"penstock.{key}": value for key, value in facts.items() if isinstance(value, str | int | float)}
        made: Span = self._tracer.start_span(name, _context(parent), attributes=said, start_time=began)
        with trace.use_span(made, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except Exception as error:
                # Without its message, which may quote what a client has sent: a statement with a password in it.
                made.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def current(self) -> SpanContext | None:
        found = trace.get_current_span().get_span_context()
        return found if found.is_valid else None

    def id(self) -> str | None:
        found = self.current()
        return None if found is None else trace.format_trace_id(found.trace_id)

    def close(self) -> None:
        """Export what waits, and end the thread that does."""
        self._provider.shutdown()


def _context(parent: object | None) -> Context | None:
    """Where a span stands that follows from ``parent``: a span, or the header ``traceparent`` of a client."""
    if isinstance(parent, SpanContext):
        return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())
    if isinstance(parent, str):
        return TraceContextTextMapPropagator().extract({_HEADER: parent}, Context())
    return None


def export_to(address: str) -> OpenTelemetry:
    """Spans of this process go to a collector from now on; ``stop`` ends it."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=address.rstrip("/") + "/v1/traces", timeout=5)
    return start(BatchSpanProcessor(exporter))


def start(processor: SpanProcessor) -> OpenTelemetry:
    """Spans of this process go to a processor from now on."""
    made = OpenTelemetry(processor)
    tracing.trace(made)
    return made


def stop(made: OpenTelemetry) -> None:
    """No more spans."""
    tracing.trace(None)
    made.close()
