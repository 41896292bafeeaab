"""The trace context of a request to a server: that of the current span, in `_meta` (SEP-414)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER
from opentelemetry.propagate import inject

from ....sessions.json_codec import JSON
from ....sessions.metrics.spans import trace_context

_IS_NAMED: Final = OTEL_PYTHON_TRACER_PROVIDER in os.environ


def is_tracing() -> bool:
    """Whether OpenTelemetry is set up; then the SDK must create a span for each request."""
    # get_tracer_provider() would look into the environment of the process for each call.
    return _IS_NAMED or trace._TRACER_PROVIDER is not None  # pyright: ignore[reportPrivateUsage]


def with_trace_context(params: JSON) -> JSON:
    """Return the parameters with the caller's trace context in `_meta`."""
    carrier = trace_context()
    if not carrier and get_current():
        inject(carrier)
    if not carrier:
        return params
    meta: Mapping[str, Any] = params.get("_meta") or {}
    return {**params, "_meta": {**meta, **carrier}}
