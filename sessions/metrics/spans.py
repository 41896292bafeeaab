"""The spans of this process, after the conventions of OpenTelemetry for MCP.

They are plain objects, since those of the SDK of OpenTelemetry cost a call several times as much. server/process/tracing.py
exports them; without it, which is the default, none are created. Attributes have no arguments, results or texts of errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from types import TracebackType
from typing import Any, Final, Literal, Protocol

from ..errors import SessionError
from .instruments import OTHER

SAMPLED: Final = 0x01
"""A flag of a trace, as is the next one (W3C Trace Context)."""
RANDOM: Final = 0x02
MAX_STATE: Final = 512
"""Characters of a `tracestate` that are passed on; a longer or malformed one is left out."""

_NONE: Final = nullcontext()
_TRACEPARENT: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_MEMBER: Final = (
    r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_TRACESTATE: Final = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}")
_current: Final[ContextVar[Span | None]] = ContextVar("span", default=None)


class Span:
    """A span that lasts as long as its block, and is current in it: those that begin within are its children.

    An error ends it as failed. A span that is not sampled is not exported, and passes its trace on.
    """

    def __init__(
        self,
        name: str,
        kind: Literal["SERVER", "CLIENT", "INTERNAL"],
        trace: tuple[int, int | None, int, str],
        attributes: dict[str, str],
    ) -> None:
        self.name = name
        self.kind = kind
        self.trace_id, self.parent_id, self.flags, self.trace_state = trace
        self.span_id = getrandbits(64)
        self.attributes = attributes
        self.error = ""
        """The label of the error that it ended with, empty without one."""
        self.began_at = time.time_ns()
        self.ended_at = 0
        self._token = _current.set(self)

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(error.code if isinstance(error, SessionError) else OTHER if error else "")

    def end(self, error: str = "", describe: Callable[[], Mapping[str, str]] = dict) -> None:
        """End the span, with further attributes if it is sampled."""
        _current.reset(self._token)
        if self.flags & SAMPLED and SPANS.exporter is not None:
            self.error, self.ended_at = error, time.time_ns()
            self.attributes.update(describe())
            if error:
                self.attributes["error.type"] = error
            SPANS.exporter.export(self)


class Exporter(Protocol):
    """Selects and takes spans. Neither method may block."""

    def samples(self, name: str, trace_id: int, parent_id: int | None, flags: int) -> bool: ...

    def export(self, span: Span) -> None: ...


class Spans:
    """Creates the spans of this process, while it has an exporter."""

    exporter: Exporter | None = None

    def request(self, name: str, carrier: Mapping[str, Any]) -> Span | None:
        """Begin the span of a request of a client, whose carrier may name its parent (SEP-414).

        None without an exporter, and for a trace that would begin here and is not sampled: to pass it on costs more than
        to measure it.
        """
        if self.exporter is None:
            return None
        parent, state = carrier.get("traceparent"), carrier.get("tracestate")
        match = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
        if match is None:
            trace_id, parent_id, flags, state = getrandbits(128), None, RANDOM, ""
        else:
            trace_id, parent_id, flags = (int(each, 16) for each in match.groups())
        is_sampled = self.exporter.samples(name, trace_id, parent_id, flags)
        if match is None and not is_sampled:
            return None
        flags = flags & RANDOM | (SAMPLED if is_sampled else 0)
        if not isinstance(state, str) or len(state) > MAX_STATE or not _TRACESTATE.fullmatch(state):
            state = ""
        return Span(name, "SERVER", (trace_id, parent_id, flags, state), {})

    def call(self, service: str, tool: str, session_id: str) -> AbstractContextManager[None]:
        """Return the span of a call of a service."""
        parent = _current.get()
        if parent is None or not parent.flags & SAMPLED:
            return _NONE
        attributes = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "statehold.service": service,
            "statehold.session.id": session_id,
        }
        return Span(f"tools/call {tool}", "CLIENT", _trace_of(parent), attributes)

    def step(self, name: str, service: str) -> AbstractContextManager[None]:
        """Return the span of a step of a call within this process, such as a wait."""
        parent = _current.get()
        if parent is None or not parent.flags & SAMPLED:
            return _NONE
        attributes = {"statehold.service": service}
        return Span(f"statehold.{name}", "INTERNAL", _trace_of(parent), attributes)


SPANS: Final = Spans()
"""Those of this process, as OpenTelemetry has one provider for each process."""


def _trace_of(parent: Span) -> tuple[int, int | None, int, str]:
    return parent.trace_id, parent.span_id, parent.flags, parent.trace_state


def trace_context() -> dict[str, str]:
    """Return the trace context for requests that belong to the current span, empty without one."""
    span = _current.get()
    if span is None:
        return {}
    text = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.flags:02x}"
    return {"traceparent": text} | ({"tracestate": span.trace_state} if span.trace_state else {})


def trace_id() -> str | None:
    """Return the id of the current trace in hexadecimal, None without one."""
    span = _current.get()
    return None if span is None else f"{span.trace_id:032x}"
