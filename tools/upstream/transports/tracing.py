"""Passes the trace contexts of callers on to upstreams (SEP-414)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.context import get_current
from opentelemetry.propagate import inject
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from ....sessions.json_codec import JSON


def is_tracing() -> bool:
    """Whether OpenTelemetry is set up; then the SDK must create a span for each request."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


def with_trace_context(params: JSON) -> JSON:
    """Return the parameters with the caller's trace context in `_meta`."""
    if not get_current():
        return params
    carrier: dict[str, str] = {}
    inject(carrier)
    if not carrier:
        return params
    meta: Mapping[str, Any] = params.get("_meta") or {}
    return {**params, "_meta": {**meta, **carrier}}


__all__ = ["is_tracing", "with_trace_context"]
