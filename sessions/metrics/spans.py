"""The spans of this process, after the conventions of OpenTelemetry for MCP.

Without a tracer, which is the default, nothing is created. Attributes have no arguments, no results and no texts of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..errors import SessionError
from .instruments import OTHER

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_NONE: Final = nullcontext()


class ActiveSpan:
    """A span that lasts as long as its block, and is current in it: those within are its children.

    An error ends it as failed.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = attach(set_span_in_context(span))

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        label = "" if error is None else error.code if isinstance(error, SessionError) else OTHER
        self.end(dict, label)

    def end(self, describe: Callable[[], Mapping[str, str]], label: str) -> None:
        """End the span with further attributes, and as failed with the label of an error, unless that is empty."""
        detach(self._token)
        if self._span.is_recording():
            self._span.set_attributes(describe())
            if label:
                self._span.set_attribute("error.type", label)
                self._span.set_status(StatusCode.ERROR)
            self._span.end()


class Spans:
    """Creates the spans of this process, while it has a tracer."""

    tracer: Tracer | None = None

    def request(self, name: str, carriers: Iterable[Mapping[str, Any]]) -> ActiveSpan | None:
        """Begin the span of a request of a client, None without a tracer.

        Its parent is that of the first carrier that has one (SEP-414).
        """
        if self.tracer is None:
            return None
        parent = next(filter(None, map(_parent_of, carriers)), None)
        return ActiveSpan(self.tracer.start_span(name, parent, SpanKind.SERVER))

    def call(self, service: str, tool: str, session_id: str) -> AbstractContextManager[None]:
        """Return the span of a call of a service."""
        if self.tracer is None or not get_current_span().is_recording():
            return _NONE
        attributes = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "statehold.service": service,
            "statehold.session.id": session_id,
        }
        name = f"tools/call {tool}"
        return ActiveSpan(self.tracer.start_span(name, None, SpanKind.CLIENT, attributes))

    def step(self, name: str, service: str) -> AbstractContextManager[None]:
        """Return the span of a step of a call within this process, such as a wait."""
        # The children of a span that is not sampled are not either, and would cost time.
        if self.tracer is None or not get_current_span().is_recording():
            return _NONE
        attributes = {"statehold.service": service}
        return ActiveSpan(self.tracer.start_span(f"statehold.{name}", attributes=attributes))


SPANS: Final = Spans()
"""Those of this process, as OpenTelemetry has one provider for each process."""


def _parent_of(carrier: Mapping[str, Any]) -> Context | None:
    if not isinstance(carrier.get("traceparent"), str):
        return None
    keys = ("traceparent", "tracestate")
    texts = {key: carrier[key] for key in keys if isinstance(carrier.get(key), str)}
    context = _PROPAGATOR.extract(texts, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def trace_id() -> str | None:
    """Return the id of the current trace in hexadecimal, None without one."""
    context = get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None
