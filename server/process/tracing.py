"""The export of spans by OTLP, set up by the variables of OpenTelemetry: `OTEL_EXPORTER_OTLP_ENDPOINT` turns it on.

The sampler, the headers and the limits are those of the other variables `OTEL_*`. A collector that does not answer costs the
spans that do not fit into the queue of the exporter, and no call.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from ...sessions.json_codec import well_formed
from ...sessions.metrics.spans import SAMPLED, SPANS, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_SECONDS: Final = 2.0
"""Seconds that the last spans may take at the end of the process."""
_SAMPLED: Final = TraceFlags(SAMPLED)

logger = logging.getLogger("statehold.server")


@asynccontextmanager
async def span_export(version: str, node_id: str) -> AsyncGenerator[None]:
    """Create and export spans while the block runs, if the environment names a collector."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or not any(os.environ.get(name) for name in ENDPOINTS):
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("no spans are exported; install statehold[telemetry]")
        yield
        return
    attributes = {
        "service.name": "statehold",
        "service.version": version,
        "service.instance.id": node_id,
    }
    resource = Resource(attributes).merge(OTELResourceDetector().detect())
    processor = BatchSpanProcessor(OTLPSpanExporter())
    SPANS.exporter = _Exporter(processor, resource, version)
    try:
        yield
    finally:
        SPANS.exporter = None
        # A daemon: the process would wait for any other thread before it exits.
        export = threading.Thread(target=processor.shutdown, daemon=True)
        export.start()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(export.join, FLUSH_SECONDS)


class _Exporter:
    """Samples spans as the environment says, and queues them for the thread that exports them."""

    def __init__(self, processor: BatchSpanProcessor, resource: Resource, version: str) -> None:
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._processor = processor
        self._resource = resource
        self._scope = InstrumentationScope("statehold", version)
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        self._readable_span = ReadableSpan

    def samples(self, name: str, trace_id: int, parent_id: int | None, flags: int) -> bool:
        context = Context()
        if parent_id is not None:
            parent = SpanContext(trace_id, parent_id, is_remote=True, trace_flags=TraceFlags(flags))
            context = set_span_in_context(NonRecordingSpan(parent), context)
        result = self._sampler.should_sample(context, trace_id, name, SpanKind.SERVER)
        return result.decision.is_sampled()

    def export(self, span: Span) -> None:
        is_remote = span.kind == "SERVER"
        parent = span.parent_id and SpanContext(span.trace_id, span.parent_id, is_remote=is_remote)
        state = TraceState.from_header([span.trace_state]) if span.trace_state else None
        readable = self._readable_span(
            # One text that cannot be encoded would cost its whole batch.
            name=well_formed(span.name),
            context=SpanContext(span.trace_id, span.span_id, False, _SAMPLED, state),
            parent=parent or None,
            resource=self._resource,
            attributes={key: well_formed(text) for key, text in span.attributes.items()},
            kind=SpanKind[span.kind],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=span.began_at,
            end_time=span.ended_at,
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(readable)
