"""The spans of this process, after the conventions of OpenTelemetry for MCP.

Without a tracer, which is the default, nothing is created. Attributes have no arguments and no results.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..errors import SessionError

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_NONE: Final = nullcontext(INVALID_SPAN)
_CARRIED: Final = ("traceparent", "tracestate")


class Spans:
    """Creates the spans of this process. A span is current in its block, so that those within are its children."""

    def __init__(self) -> None:
        self._tracer: Tracer | None = None

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    def use(self, tracer: Tracer | None) -> None:
        """Create spans with a tracer from now on, none without one."""
        self._tracer = tracer

    def request(
        self, name: str, carriers: Iterable[Mapping[str, Any]], attributes: Mapping[str, Any]
    ) -> AbstractContextManager[Span]:
        """Return the span of a request of a client. Its parent is that of the first carrier that has one (SEP-414)."""
        if self._tracer is None:
            return _NONE
        parent = next(filter(None, map(_parent_of, carriers)), None)
        return self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def call(self, service: str, tool: str, session_id: str) -> AbstractContextManager[Span]:
        """Return the span of a call of a service."""
        tracer = self._recording()
        if tracer is None:
            return _NONE
        attributes = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "statehold.service": service,
            "statehold.session.id": session_id,
        }
        return _block(tracer, f"tools/call {tool}", SpanKind.CLIENT, attributes)

    def step(self, name: str, service: str) -> AbstractContextManager[Span]:
        """Return the span of a step of a call within this process, such as a wait."""
        tracer = self._recording()
        if tracer is None:
            return _NONE
        attributes = {"statehold.service": service}
        return _block(tracer, f"statehold.{name}", SpanKind.INTERNAL, attributes)

    def _recording(self) -> Tracer | None:
        """Return the tracer if the current span is sampled: otherwise its children are not either, and cost time."""
        return self._tracer if self._tracer and get_current_span().is_recording() else None


SPANS: Final = Spans()
"""Those of this process, as OpenTelemetry has one provider for each process."""


def _parent_of(carrier: Mapping[str, Any]) -> Context | None:
    texts = {key: carrier[key] for key in _CARRIED if isinstance(carrier.get(key), str)}
    if not texts:
        return None
    context = _PROPAGATOR.extract(texts, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


@contextmanager
def _block(
    tracer: Tracer, name: str, kind: SpanKind, attributes: Mapping[str, Any]
) -> Generator[Span]:
    with tracer.start_as_current_span(
        name,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            # Its text may quote the answer of a service.
            end_as_error(span, error.code if isinstance(error, SessionError) else "_OTHER")
            raise


def end_as_error(span: Span, label: str) -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", label)
    span.set_status(StatusCode.ERROR)


def trace_id() -> str | None:
    """Return the id of the current trace in hexadecimal, None without one."""
    context = get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None
