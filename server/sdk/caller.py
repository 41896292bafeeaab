"""The caller of a tool call, over the SDK's request context: its metadata, notifications to it, and questions to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import LOG_LEVEL_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...access.claims import VerifiedCaller
from ...access.scopes import CONTROL
from ...sessions.calls.hand_over import HandOver
from ...sessions.calls.notices import Delivery
from ...sessions.errors import (
    InvalidArgument,
    NodeUnavailable,
    NotAllowed,
    OwnedByAnotherNode,
    SessionError,
)
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL
from ...sessions.services import SERVERS_LEVEL, CallerOptions
from ...sessions.validation import label
from ...tools.upstream.negotiation import TASKS
from ...tools.upstream.results import OUR_META
from ..sockets.command import RESULT_TOKENS
from .access import RequestContext, outbound_of

logger = logging.getLogger("statehold.server")

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOG_LEVEL = "statehold.log_level"
"""The key in the state of a legacy connection for the level of `logging/setLevel`."""
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
"""The key in `_meta` of a modern request for the name and version of its client."""
CAPABILITIES = "statehold.capabilities"
"""The key in the state of a connection for its client's capabilities as JSON, set at their first use."""
INSTANCE_KEY = "statehold/operation_instance"
"""The key in `_meta` of a call for the process to which the caller addressed it."""
INSTANCE_META = "statehold/instance"
"""The key in `_meta` of a result for the process that answered."""
SESSION_META: Final = "statehold/session"
"""The key in `_meta` of a result for the summary of its session, and, with the value true, of a call that asks for it."""
PARKED_STATE: Final = "park:"
"""The prefix of the `requestState` of a parked call."""
"""The extension by which clients follow events (SEP-3415)."""
OUR_STATE = "up:"
"""The prefix of an upstream's `requestState`; that of a parked call has another one."""

ANSWER_SECONDS = 600.0
"""Seconds that a question waits for its answer. They do not count towards the time limit of the call."""

MAX_ACKNOWLEDGED_OPERATIONS = 1000
"""Operations that one call may acknowledge."""

DELIVERY_SCOPE = "statehold.delivery"
"""The key in the ASGI scope of a request for the notice that its answer carries."""

PIN_SCOPE: Final = "statehold.session"
"""The key for the pinned session: in the ASGI scope of a request, for the session that its URL names, or that of a forwarded
request; in the lifespan state of a connection, for the one that its client names."""
PRINCIPAL_SCOPE: Final = "statehold.principal"
"""The key in the scope of a forwarded request for its principal. No other request has it."""
SHAREE_SCOPE: Final = "statehold.sharee"
"""The key in the scope of such a request, forwarded from another node, for the key of its caller's principal."""
OWNER_SCOPE: Final = "statehold.owner"
"""The key in the scope of a request for the owner of a session that is shared with its caller, as whose request it runs."""
AUTO_SCOPE: Final = "statehold.auto"
"""The key in the scope of a forwarded request for whether its client need not name the session."""
SESSION_SCOPE: Final = "statehold.forwarded_session"
"""The key in the scope of a forwarded request for the session that this node is expected to own; empty for a new one."""

NOTE_SCOPE: Final = "statehold.note"
"""A line for a client over the local socket about the server that it got; it stands in the instructions."""
LINE_CALLS: Final = "statehold.line_calls"
"""The key in the lifespan state of a connection over lines for its plain calls; see line_calls.py."""
COMMAND_SCOPE: Final = "statehold.command"
"""The key in the lifespan state of a connection of a command; see sockets/command.py."""

_HOP_KEYS = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
_PROTOCOL_META = "io.modelcontextprotocol/"
_CAPABILITIES_BY_METHOD = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

Ask = Callable[[str, JSON], Awaitable[JSON]]


@dataclass(frozen=True, slots=True)
class OwnMeta:
    """The members of the `_meta` of a call that only Statehold reads."""

    operation_id: str | None = None
    """The id under which at most one call is run; see sessions/calls/idempotency.py."""
    epoch: int | None = None
    """The epoch in which the caller made its operation id."""
    is_repeat: bool = False
    """Whether the caller has sent this operation id before."""
    instance: str | None = None
    """The process to which the caller addressed the call; see gateway/own_tools.py."""
    acknowledged_operations: Sequence[str] = ()
    """The ids of operations whose results the caller has and will not request again."""
    run_id: str | None = None
    """The id with which the caller groups its calls."""
    hands_over: bool = False
    """Whether the call becomes a task at once, if its client declares tasks."""

    @staticmethod
    def parse(meta: Mapping[str, Any]) -> OwnMeta:
        """Return these members of a `_meta`.

        Raises:
            InvalidArgument: a member is malformed.
        """
        epoch: object = meta.get("statehold/operation_epoch")
        if epoch is not None and (type(epoch) is not int or epoch < 0):
            raise InvalidArgument(
                '_meta["statehold/operation_epoch"] should be the epoch of _meta["statehold/session"], or 0.'
            )
        settled: object = meta.get("statehold/settled", [])
        operations = cast("list[object]", settled) if isinstance(settled, list) else None
        if operations is None or len(operations) > MAX_ACKNOWLEDGED_OPERATIONS:
            raise InvalidArgument(
                f'_meta["statehold/settled"] should be a list of at most {MAX_ACKNOWLEDGED_OPERATIONS} operation ids.'
            )
        return OwnMeta(
            _label(meta, "operation_id"),
            epoch,
            meta.get("statehold/operation_repeated") is True,
            _label(meta, "operation_instance"),
            [label('_meta["statehold/settled"]', operation_id) for operation_id in operations],
            _label(meta, "run_id"),
            meta.get("statehold/hand_over") is True,
        )


_NO_META: Final = OwnMeta()


def _label(meta: Mapping[str, Any], name: str) -> str | None:
    value = meta.get(f"statehold/{name}")
    return None if value is None else label(f'_meta["statehold/{name}"]', value)


class Caller:
    """The caller of one tool call; implements CallContext. It outlives a request only if the call is parked for input.

    After close() notifications are dropped and questions are refused.
    """

    wants_facts = False
    """The session layer knows whether the journal keeps them."""
    operation_id = None
    note_upstream_task = None
    hand_over: HandOver | None = None
    """Set if its call may become a task."""
    options = CallerOptions()

    def __init__(
        self, ctx: RequestContext, params: Mapping[str, Any], *, ask: Ask | None = None
    ) -> None:
        self._ask = ask
        self._closed = False
        self.bind(ctx, params)

    def bind(self, ctx: RequestContext, params: Mapping[str, Any]) -> None:
        """Use another request from now on: the one that continues the parked call."""
        meta: JSON = params.get("_meta") or {}
        self.ctx = ctx
        self._meta = meta
        self.modern = is_modern(ctx)
        own: JSON = {}
        relayed: JSON = {}
        for key, value in meta.items():
            if key.startswith(OUR_META):
                own[key] = value
            elif key not in _HOP_KEYS and not key.startswith(_PROTOCOL_META):
                relayed[key] = value
        self._own_meta = own
        state, tokens = params.get("requestState"), own.get(RESULT_TOKENS)
        answers, upstream_state = params.get("inputResponses"), None
        if isinstance(state, str) and state.startswith(OUR_STATE):
            upstream_state = state[len(OUR_STATE) :]
        elif isinstance(state, str) and state.startswith(PARKED_STATE):
            # These answers are to questions of the parked call, which keeps those that it began with.
            answers, upstream_state = self.options.input_responses, self.options.request_state
        is_owner = ctx.request is None or OWNER_SCOPE not in ctx.request.scope
        self.options = CallerOptions(
            relayed,
            "progressToken" in meta,
            self.log_level,
            answers,
            upstream_state,
            # A command ends before the answer comes, and has then no arguments to repeat: its calls are parked instead.
            # So is a call that may become a task, which then has its questions.
            self.modern and self.hand_over is None and COMMAND_SCOPE not in ctx.lifespan_context,
            tokens if type(tokens) is int and tokens >= 0 else None,
            is_owner,
            may_approve=is_owner and may_control(ctx),
        )

    def leave_request(self) -> None:
        """Let go of the request, which ends before its call, to free its memory. Then nothing can be sent to the client."""
        session = ServerSession(cast("Any", None), connection_of(self.ctx))
        self.ctx = replace(self.ctx, session=session, params=None, meta=None, request=None)
        self._meta = self._own_meta = {}

    def close(self) -> None:
        self._closed = True

    def carry(self, delivery: Delivery | None) -> None:
        """Store the notice of the answer in the request, for the HTTP response that delivers it; see http/fast_path.py."""
        request = self.ctx.request
        if delivery is not None and request is not None:
            request.scope[DELIVERY_SCOPE] = delivery

    @property
    def own_meta(self) -> OwnMeta:
        """The members of `_meta` for Statehold. Raises InvalidArgument."""
        return OwnMeta.parse(self._own_meta) if self._own_meta else _NO_META

    @property
    def log_level(self) -> str | None:
        if self.modern:
            level = self._meta.get(LOG_LEVEL_META_KEY)
            return level if level in LEVELS else None
        return connection_of(self.ctx).state.get(LOG_LEVEL, SERVERS_LEVEL)

    @property
    def client_name(self) -> str | None:
        """The name of the client in its handshake; None when it is not known."""
        info: object = self._meta.get(CLIENT_INFO)
        if isinstance(info, dict):
            name: object = cast("JSON", info).get("name")
            return name if isinstance(name, str) else None
        params = self.ctx.session.client_params
        return None if params is None else params.client_info.name

    @property
    def capabilities(self) -> JSON:
        state = connection_of(self.ctx).state
        capabilities = state.get(CAPABILITIES)
        if capabilities is None:
            client_capabilities = self.ctx.session.client_capabilities
            capabilities = state[CAPABILITIES] = (
                {}
                if client_capabilities is None
                else client_capabilities.model_dump(by_alias=True, exclude_none=True, mode="json")
            )
        return capabilities

    @property
    def reachable(self) -> bool:
        # A 2026-07-28 client can always be asked: by the result that ends its request.
        return not self._closed and (self.modern or self.ctx.session.can_send_request)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if not self._closed:
            await self.ctx.session.report_progress(progress, total, message)

    async def log(self, params: JSON) -> None:
        least_level, level = self.log_level, params.get("level")
        if self._closed or least_level is None or level not in LEVELS:
            return
        if least_level == SERVERS_LEVEL or LEVELS.index(level) >= LEVELS.index(least_level):
            await outbound_of(self.ctx).notify("notifications/message", params)

    async def ask(self, method: str, params: JSON) -> JSON:
        capability = _CAPABILITIES_BY_METHOD.get(method)
        if self._closed or capability is None or capability not in self.capabilities:
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
                return await outbound_of(self.ctx).send_raw_request(method, params)
        except TimeoutError:
            raise NotAllowed(f"The caller did not answer {method} in time.") from None
        except NoBackChannelError:
            raise NotAllowed(f"The caller cannot be asked ({method}).") from None
        except MCPError as error:
            raise NotAllowed(f"The caller refused {method}: {error.message}") from None


def may_control(ctx: RequestContext) -> bool:
    """Whether the scopes of a caller include CONTROL; those of a forwarded request are not known."""
    user = auth_context_var.get()
    if isinstance(user, VerifiedCaller):
        return CONTROL in user.scopes
    return ctx.request is None or ctx.request.scope.get(PRINCIPAL_SCOPE, LOCAL) == LOCAL


def asks_for(ctx: RequestContext, key: str) -> bool:
    """Whether the `_meta` of a request has a key with the value true, and so asks for the same key in its result."""
    meta: object = (ctx.params or {}).get("_meta")
    return isinstance(meta, dict) and cast("JSON", meta).get(key) is True


def can_elicit(elicitation: JSON, mode: object) -> bool:
    """Whether a caller with this `elicitation` capability supports a mode. An empty object means forms."""
    return mode in elicitation or (mode == "form" and "url" not in elicitation)


def may_ask(ctx: RequestContext) -> bool:
    """Whether a modern caller can answer any kind of question, so that its call may have to be parked."""
    capabilities: types.ClientCapabilities | None = ctx.session.client_capabilities
    return capabilities is not None and bool(
        capabilities.elicitation is not None
        or capabilities.sampling is not None
        or capabilities.roots is not None
    )


def declares_tasks(ctx: RequestContext) -> bool:
    """Whether the client of a request takes a task for a result. Only clients of 2026-07-28 can."""
    capabilities: types.ClientCapabilities | None = ctx.session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    return is_modern(ctx) and extensions is not None and TASKS in extensions


def is_handed_back(ctx: RequestContext, error: SessionError) -> bool:
    """Whether an error means that this node does not serve a forwarded request, and another may."""
    if ctx.request is None or not is_forwarded(ctx):
        return False
    if isinstance(error, OwnedByAnotherNode):
        # Of a second session, the client gets the error: a request is forwarded once.
        return ctx.request.scope[SESSION_SCOPE] in ("", error.session_id)
    return isinstance(error, NodeUnavailable)


def connection_of(ctx: RequestContext) -> Connection:
    """Return the SDK's connection of a request: one per request in 2026-07-28, one per transport session before."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def is_modern(ctx: RequestContext) -> bool:
    """Whether a request is of the revision 2026-07-28 or a later one."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def is_forwarded(ctx: RequestContext) -> bool:
    """Whether another node has forwarded a request."""
    return ctx.request is not None and PRINCIPAL_SCOPE in ctx.request.scope


def progress_params(
    token: str | int, progress: float, total: float | None, message: str | None
) -> JSON:
    """Return the parameters of `notifications/progress` for a request with this progress token."""
    params = {"progressToken": token, "progress": progress, "total": total, "message": message}
    return {key: value for key, value in params.items() if value is not None}
