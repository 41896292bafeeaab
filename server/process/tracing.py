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
from typing import Final

import anyio
import anyio.to_thread

from ...sessions.metrics.spans import SPANS

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_SECONDS: Final = 2.0
"""Seconds that the last spans may take at the end of the process."""

logger = logging.getLogger("statehold.server")


@asynccontextmanager
async def span_export(version: str, node_id: str) -> AsyncGenerator[None]:
    """Create and export spans while the block runs, if the environment names a collector."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
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
    # Not the global provider: with one, the SDK of MCP would create each span a second time.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    SPANS.tracer = provider.get_tracer("statehold", version)
    try:
        yield
    finally:
        SPANS.tracer = None
        # A daemon: the process would wait for any other thread before it exits.
        export = threading.Thread(target=provider.shutdown, daemon=True)
        export.start()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(export.join, FLUSH_SECONDS)
