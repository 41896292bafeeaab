"""Requests for a session of another node: they are forwarded to the node that owns the session, and its answer passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError, NoBackChannelError

from ...sessions.cluster.placement import place_here
from ...sessions.errors import OutcomeUnknown, OwnedByAnotherNode, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.repeats import may_repeat
from ...tools.upstream.transports.trace_context import with_trace_context
from ..cluster.assertion import Assertion, NodeRequest
from ..cluster.node_connection import ConnectionEnded, NodeConnection
from ..cluster.node_dialer import NodeRefused, NodeUnreachable
from ..cluster.node_messages import (
    ANSWERS,
    NOT_OWNER,
    NOTICES,
    REFUSED,
    ForwardedRequest,
    encode,
    error_message,
    parse,
    raise_error,
)
from ..cluster.node_pool import Peers
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext, outbound_of
from ..sdk.caller import (
    CLIENT_INFO,
    DELIVERY_SCOPE,
    INSTANCE_KEY,
    INSTANCE_META,
    LOG_LEVEL,
    Caller,
    connection_of,
    is_forwarded,
    is_modern,
)
from .request_checks import Requester

LEASE_WAIT_SECONDS: Final = 15.5
"""Seconds that a request waits for an owner with a lease that cannot be reached: until it answers, or is declared dead."""
HANDOVER_SECONDS: Final = 40.0
"""Seconds that a request waits for a session which its owner is giving up."""
FIRST_RETRY_SECONDS: Final = 0.01
LONGEST_RETRY_SECONDS: Final = 0.25
MAX_ATTEMPTS: Final = 2
"""Attempts to reach the owner: after the first one a dead owner's session is claimed here."""

_LOCAL_METHODS: Final = frozenset(
    {"resources/subscribe", "resources/unsubscribe", "subscriptions/listen"}
)
"""Requests about the client's connection to this node."""


@dataclass(frozen=True, slots=True)
class ForwardedNotice:
    """The notice that a forwarded answer carries. Its owner makes it due again if the answer is not delivered."""

    node: str
    number: int


class _NotOwner(Exception):
    """Raised when the other node does not own the session any more; nothing ran."""


class Forwarder:
    """Forwards the requests of one server. It keeps nothing between requests.

    A forwarded request is never forwarded again. Cancelling run() cancels the request at the owner.
    """

    def __init__(self, gateway: Gateway, requester: Requester) -> None:
        self._gateway = gateway
        self._requester = requester

    async def run(self, ctx: RequestContext, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Return `answer()`, or the answer of the node that owns the session.

        `answer` is called again when its session changes hands meanwhile.

        Raises:
            OwnedByAnotherNode: the owner cannot be reached, or the request must not be forwarded; nothing ran.
            OutcomeUnknown: the connection was lost after the owner had begun.
        """
        if ctx.method in _LOCAL_METHODS:
            with place_here():
                return await answer()
        try:
            return await answer()
        except OwnedByAnotherNode as owner:
            return await self.forward(ctx, owner, answer)

    async def forward(
        self, ctx: RequestContext, owner: OwnedByAnotherNode, answer: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the answer of the owner of a session, or that of `answer` when the session has changed hands meanwhile.

        Raises:
            OwnedByAnotherNode, OutcomeUnknown: as run() does.
        """
        peers = self._gateway.peers
        if peers is None or is_forwarded(ctx):
            raise owner
        began_at = anyio.current_time()
        attempts, wait = 0, FIRST_RETRY_SECONDS
        while True:
            try:
                with peers.count_request():
                    return await self._forward(ctx, peers, owner)
            except NodeRefused:
                raise owner from None
            except _NotOwner:
                if owner.session_id is not None:
                    self._gateway.registry.forget_owner(owner.session_id)
                if anyio.current_time() >= began_at + HANDOVER_SECONDS:
                    raise owner from None
            except NodeUnreachable as error:
                attempts += 1
                if owner.adopt and attempts < MAX_ATTEMPTS:
                    self._gateway.node.forget(owner.node)
                elif owner.adopt:
                    with place_here():
                        return await answer()
                elif self._gateway.config.cluster.enabled:
                    await self._wait_for_lease(owner, peers, attempts, began_at)
                elif error.is_silent or attempts == MAX_ATTEMPTS:
                    raise owner from None
            except OutcomeUnknown:
                attempts += 1
                if attempts == MAX_ATTEMPTS or not self._is_repeatable(ctx):
                    raise
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY_SECONDS)
            try:
                return await answer()
            except OwnedByAnotherNode as error:
                owner = error

    async def _wait_for_lease(
        self, owner: OwnedByAnotherNode, peers: Peers, attempts: int, began_at: float
    ) -> None:
        """Wait until an owner can be reached, or is known to be dead. A failed connection proves nothing.

        Raises:
            OwnedByAnotherNode: this took too long, or this node is about to end.
        """
        if attempts < MAX_ATTEMPTS:
            # First the caller tries to claim the session, which finds a dead process of this machine by its lock.
            return
        wait = FIRST_RETRY_SECONDS
        while (
            anyio.current_time() < began_at + LEASE_WAIT_SECONDS
            and not self._gateway.registry.draining
        ):
            with suppress(StoreUnavailable):
                if await self._gateway.node.find(owner.node) is None:
                    return
            with suppress(NodeUnreachable):
                await peers.probe(owner.node)
                return
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY_SECONDS)
        raise owner from None

    async def _forward(self, ctx: RequestContext, peers: Peers, owner: OwnedByAnotherNode) -> JSON:
        request, assertion = self._request(ctx, owner)
        async with peers.exchange(owner.node, request.to_request(), assertion) as connection:
            try:
                status, _ = await connection.head()
                if status in (NOT_OWNER, REFUSED):
                    await connection.read()
                    message: JSON = {}
                else:
                    message = await _relay(ctx, peers, owner.node, assertion, connection)
            except ConnectionEnded:
                raise OutcomeUnknown(
                    "The process that holds the session ended during the call.",
                    session_id=owner.session_id,
                ) from None
        if status == NOT_OWNER:
            raise _NotOwner
        if status == REFUSED:
            raise NodeRefused
        if "notice" in message and ctx.request is not None:
            ctx.request.scope[DELIVERY_SCOPE] = ForwardedNotice(owner.node, message["notice"])
        if "error" in message:
            raise_error(message["error"])
        result: JSON = message["result"]
        if _instance(ctx) is not None:
            instance = self._gateway.own_tool_calls.instance
            result["_meta"] = {**(result.get("_meta") or {}), INSTANCE_META: instance}
        return result

    async def return_notice(self, notice: ForwardedNotice) -> None:
        """Tell the owner that the client did not get the answer that carries a notice."""
        peers = self._gateway.peers
        if peers is not None:
            # The notice of an owner that ended meanwhile is gone with it.
            with suppress(NodeUnreachable, ConnectionEnded):
                await _post(peers, notice.node, f"{NOTICES}{notice.number}", b"", Assertion())

    def _request(
        self, ctx: RequestContext, owner: OwnedByAnotherNode
    ) -> tuple[ForwardedRequest, Assertion]:
        params = dict(ctx.params or {})
        is_auto = self._requester.naming(ctx) == "auto"
        caller = Caller(ctx, params)
        if _instance(ctx) is not None:
            # The owner keeps the receipt with the session, where this node finds it if it owns the session later.
            meta = {key: value for key, value in params["_meta"].items() if key != INSTANCE_KEY}
            params["_meta"] = meta
        if ctx.method == "tools/call" and caller.client_name is not None:
            # The owner does not see the handshake of a legacy client.
            info = {CLIENT_INFO: {"name": caller.client_name}}
            params["_meta"] = {**info, **(params.get("_meta") or {})}
        if is_auto and ctx.method == "tools/call":
            params["arguments"] = self._named_arguments(params, owner)
        sharee = self._requester.sharee(ctx)
        request = ForwardedRequest(
            ctx.method,
            with_trace_context(params),
            self._requester.pin(ctx),
            is_auto,
            ctx.protocol_version,
            caller.capabilities,
            connection_of(ctx).state.get(LOG_LEVEL),
            not is_modern(ctx) and ctx.session.can_send_request,
            False if sharee is None else sharee or True,
        )
        assertion = Assertion(
            self._requester.principal(ctx),
            self._gateway.config.namespace,
            owner.session_id or "",
            owner.epoch,
            owner.adopt,
        )
        return request, assertion

    def _named_arguments(self, params: JSON, owner: OwnedByAnotherNode) -> JSON:
        """Return the arguments of a call with its session: the owner does not know that of the client's connection."""
        entry = self._gateway.tools.entry(params["name"], "auto")
        argument = "session_id" if entry is None else entry.session_argument
        arguments: JSON = dict(params.get("arguments") or {})
        if owner.session_id is not None and not arguments.get(argument):
            arguments[argument] = owner.session_id
        return arguments

    def _is_repeatable(self, ctx: RequestContext) -> bool:
        """Whether a call may be sent again after it was lost on the way."""
        params = ctx.params or {}
        if ctx.method != "tools/call":
            return False
        naming, name = self._requester.naming(ctx), params["name"]
        tool = self._gateway.tools.own_tool(name, naming)
        entry = self._gateway.tools.entry(name, naming) if tool is None else None
        spec = (
            None if entry is None else self._gateway.services[entry.service].specs.get(entry.tool)
        )
        definition = tool.definition() if tool else spec.definition if spec else {}
        has_operation_id = Caller(ctx, params).own_meta.operation_id is not None
        return may_repeat(definition, has_operation_id=has_operation_id)


async def next_message(connection: NodeConnection) -> JSON | None:
    """Return the next message of the owner, None after the last one. Raises ConnectionEnded."""
    line = await connection.read_line()
    return parse(line) if line else None


async def _relay(
    ctx: RequestContext,
    peers: Peers,
    node: str,
    assertion: Assertion,
    connection: NodeConnection,
) -> JSON:
    """Pass the owner's notifications and questions on to the client, and return the owner's last message.

    Raises:
        ConnectionEnded: the owner ended before its last message.
    """
    message = await _pass_on_notices(ctx, connection)
    if "ask" in message:
        ask = partial(_ask, ctx, peers, node, assertion)
        message = await _relay_questions(ctx, connection, message, ask)
    if await connection.read_line():
        raise ConnectionEnded
    return message


async def _relay_questions(
    ctx: RequestContext,
    connection: NodeConnection,
    message: JSON,
    ask: Callable[[JSON], Coroutine[Any, Any, None]],
) -> JSON:
    """Have the client answer the owner's questions, of which `message` is the first. Return the message after them."""
    last: JSON = {}
    async with anyio.create_task_group() as tasks:
        # Caught here, since the task group would wrap it.
        with suppress(ConnectionEnded):
            while "ask" in message:
                tasks.start_soon(ask, message)
                message = await _pass_on_notices(ctx, connection)
            last = message
        tasks.cancel_scope.cancel()
    if not last:
        raise ConnectionEnded
    return last


async def _pass_on_notices(ctx: RequestContext, connection: NodeConnection) -> JSON:
    """Pass on notifications until another message comes, and return that. Raises ConnectionEnded."""
    while True:
        message = await next_message(connection)
        if message is None:
            raise ConnectionEnded
        if "notify" not in message:
            return message
        await outbound_of(ctx).notify(message["notify"], message["params"])


async def _ask(
    ctx: RequestContext, peers: Peers, node: str, assertion: Assertion, message: JSON
) -> None:
    try:
        result = await outbound_of(ctx).send_raw_request(message["method"], message["params"])
        answer: JSON = {"result": result}
    except (MCPError, NoBackChannelError) as error:
        answer = error_message(error)
    # An owner that ended meanwhile has ended the request as well.
    with suppress(NodeUnreachable, ConnectionEnded):
        await _post(peers, node, f"{ANSWERS}{message['ask']}", encode(answer), assertion)


async def _post(peers: Peers, node: str, path: str, body: bytes, assertion: Assertion) -> None:
    request = NodeRequest("POST", path, (), body)
    # The requests that have the places may wait for this one.
    async with peers.exchange(node, request, assertion, takes_place=False) as connection:
        await connection.head()
        while await connection.read():
            pass


def _instance(ctx: RequestContext) -> object:
    """Return the process to which the client addressed a call; see gateway/own_tools.py."""
    meta: object = (ctx.params or {}).get("_meta")
    return cast("JSON", meta).get(INSTANCE_KEY) if isinstance(meta, dict) else None
