"""The parts of a request that the connection which serves it may use, over the SDK's request context."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError

from ...sessions.errors import InvalidArgument, NotAllowed, Notice
from ...sessions.json_codec import JSON
from ...sessions.validation import label
from .access import RequestContext, connection_of, is_modern, outbound_of

logger = logging.getLogger("statehold.server")

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOG_LEVEL = "statehold.log_level"
"""The key under which a legacy connection keeps the level of `logging/setLevel`."""
CAPABILITIES = "statehold.capabilities"
"""The key under which a connection keeps the JSON of its client's capabilities, once it was needed."""
OUR_STATE = "up:"
"""The prefix of a `requestState` of an upstream, which tells it from that of a parked call."""

ANSWER_SECONDS = 600.0
"""Seconds that a question waits for its answer. The time limit of the call is suspended meanwhile."""

SETTLED = 1000
"""Operations that one call may settle."""

DELIVERY_SCOPE = "statehold.delivery"
"""The key in the ASGI scope of a request for the notice that its answer carries."""

_HOP_KEYS = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
_NEEDED = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

Ask = Callable[[str, JSON], Awaitable[JSON]]


class Caller:
    """The caller of one tool call; a CallContext. It outlives a request only when the call is parked for input.

    After close() notifications are dropped and questions are refused.
    """

    def __init__(
        self, ctx: RequestContext, params: Mapping[str, Any], *, ask: Ask | None = None
    ) -> None:
        self._ask = ask
        self._closed = False
        self.bind(ctx, params)

    def bind(self, ctx: RequestContext, params: Mapping[str, Any]) -> None:
        """Use another request from now on: the one that continues a parked call."""
        self._ctx = ctx
        self._params = params
        self._raw_meta: Mapping[str, Any] = params.get("_meta") or {}

    def close(self) -> None:
        self._closed = True

    def carry(self, delivery: Notice | None) -> None:
        """Pass the notice of the answer on to the response that delivers it. HTTP only; see http/fast_path.py."""
        request = self._ctx.request
        if delivery is not None and request is not None:
            request.scope[DELIVERY_SCOPE] = delivery

    @property
    def modern(self) -> bool:
        return is_modern(self._ctx)

    @property
    def meta(self) -> Mapping[str, Any]:
        return {
            key: value
            for key, value in self._raw_meta.items()
            if key not in _HOP_KEYS
            and not key.startswith(("io.modelcontextprotocol/", "statehold/"))
        }

    @property
    def operation_id(self) -> str | None:
        """The id under which at most one call is run; see sessions/calls/idempotency.py. Raises InvalidArgument."""
        return self._label("operation_id")

    @property
    def run_id(self) -> str | None:
        """The id with which the caller groups its calls. Raises InvalidArgument."""
        return self._label("run_id")

    @property
    def settled(self) -> list[str]:
        """The operations whose results the caller has, and will not ask for again. Raises InvalidArgument."""
        found: object = self._raw_meta.get("statehold/settled")
        if found is None:
            return []
        if not isinstance(found, list) or len(cast("list[object]", found)) > SETTLED:
            raise InvalidArgument(
                f'_meta["statehold/settled"] should be a list of at most {SETTLED} operation ids.'
            )
        return [label('_meta["statehold/settled"]', each) for each in cast("list[object]", found)]

    @property
    def epoch(self) -> int | None:
        """The epoch in which the caller made its operation id; see sessions/calls/idempotency.py. Raises InvalidArgument."""
        found: object = self._raw_meta.get("statehold/operation_epoch")
        if found is None or (type(found) is int and found >= 0):
            return found
        raise InvalidArgument(
            '_meta["statehold/operation_epoch"] should be the epoch of _meta["statehold/session"], or 0.'
        )

    @property
    def repeated(self) -> bool:
        """Whether the caller has sent this operation id before."""
        return self._raw_meta.get("statehold/operation_repeated") is True

    @property
    def instance(self) -> str | None:
        """The process to which the caller addressed the call; see gateway/own_tools.py. Raises InvalidArgument."""
        return self._label("operation_instance")

    def _label(self, name: str) -> str | None:
        found = self._raw_meta.get(f"statehold/{name}")
        return None if found is None else label(f'_meta["statehold/{name}"]', found)

    @property
    def wants_progress(self) -> bool:
        return "progressToken" in self._raw_meta

    @property
    def log_level(self) -> str | None:
        if self.modern:
            level = self._raw_meta.get("io.modelcontextprotocol/logLevel")
            return level if level in LEVELS else None
        return connection_of(self._ctx).state.get(LOG_LEVEL, "debug")

    @property
    def capabilities(self) -> JSON:
        state = connection_of(self._ctx).state
        declared = state.get(CAPABILITIES)
        if declared is None:
            typed = self._ctx.session.client_capabilities
            declared = state[CAPABILITIES] = (
                {}
                if typed is None
                else typed.model_dump(by_alias=True, exclude_none=True, mode="json")
            )
        return declared

    @property
    def input_responses(self) -> JSON | None:
        return self._params.get("inputResponses")

    @property
    def request_state(self) -> str | None:
        state = self._params.get("requestState")
        if isinstance(state, str) and state.startswith(OUR_STATE):
            return state[len(OUR_STATE) :]
        return None

    @property
    def can_return_input_required(self) -> bool:
        return self.modern

    @property
    def reachable(self) -> bool:
        # A 2026-07-28 client is asked by ending its request, and cancels by disconnecting before that.
        return not self._closed and (self.modern or self._ctx.session.can_send_request)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if not self._closed:
            await self._ctx.session.report_progress(progress, total, message)

    async def log(self, params: JSON) -> None:
        wanted, level = self.log_level, params.get("level")
        if self._closed or wanted is None or level not in LEVELS:
            return
        if LEVELS.index(level) >= LEVELS.index(wanted):
            await outbound_of(self._ctx).notify("notifications/message", params)

    async def ask(self, method: str, params: JSON) -> JSON:
        needed = _NEEDED.get(method)
        if self._closed or needed is None or needed not in self.capabilities:
            raise NotAllowed(f"The caller cannot answer {method}.")
        if method == "elicitation/create" and not can_elicit(
            self.capabilities["elicitation"], params.get("mode", "form")
        ):
            raise NotAllowed(f"The caller does not support this mode of {method}.")
        if self.modern:
            if self._ask is None:
                raise NotAllowed(f"The caller cannot answer {method} here.")
            return await self._ask(method, params)
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return await outbound_of(self._ctx).send_raw_request(method, params)
        except TimeoutError:
            raise NotAllowed(f"The caller did not answer {method} in time.") from None
        except NoBackChannelError:
            raise NotAllowed(f"The caller cannot be asked ({method}).") from None
        except MCPError as error:
            raise NotAllowed(f"The caller refused {method}: {error.message}") from None


def can_elicit(declared: JSON, mode: object) -> bool:
    """Tell whether a caller that declared this of elicitation supports a mode; an empty object means forms."""
    return mode in declared or (mode == "form" and "url" not in declared)


def may_ask(ctx: RequestContext) -> bool:
    """Whether a modern caller declared that it can answer anything, so that its call may have to be parked."""
    found: types.ClientCapabilities | None = ctx.session.client_capabilities
    return found is not None and bool(
        found.elicitation is not None or found.sampling is not None or found.roots is not None
    )


__all__ = ["ANSWER_SECONDS", "LEVELS", "LOG_LEVEL", "OUR_STATE", "Caller", "can_elicit", "may_ask"]
