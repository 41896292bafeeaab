"""Requests of legacy clients whose transport session another node holds: that node answers them, as they came.

A transport session lives in the process that opened it, and its id names that process. Several processes may serve one
address, so a request can arrive at any of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, cast

import anyio
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, ErrorData, JSONRPCError
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...access.claims import VerifiedCaller
from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL
from ..asgi import cancel_when_left, replay_messages
from ..cluster.assertion import Assertion, NodeRequest
from ..cluster.node_connection import ConnectionEnded, NodeConnection
from ..cluster.node_dialer import NodeUnreachable
from ..cluster.node_messages import NOT_OWNER
from ..cluster.node_pool import Peers
from ..gateway.gateway import Gateway
from .exchange import SESSION, encode_event, read_body
from .open_streams import OpenStreams

_NODE: Final = "n_"
"""How the id of a node begins; see sessions/node.py."""
_SESSION_ID: Final = re.compile(rb"([0-9a-f]{16})\.[0-9a-f]{32}")
_METHODS: Final = frozenset(("GET", "POST", "DELETE"))
_HEADERS: Final = frozenset((b"accept", b"content-type", b"last-event-id"))
"""The headers of a request that travel, besides those of MCP. Never one with a credential."""
_MCP_HEADERS: Final = b"mcp-"
_OWN_HEADERS: Final = frozenset((b"connection", b"transfer-encoding", b"date"))
"""The headers of a response that belong to its connection."""
_MESSAGES: Final = "/messages/"
_MESSAGES_PATH: Final = re.compile(f"{_MESSAGES}([0-9a-f]{{16}})/?")


def session_prefix(node: str) -> str:
    """Return the part of the ids of transport sessions that names their node."""
    return node.removeprefix(_NODE)


class ForeignSessions:
    """Passes on a request in a transport session of another node to that node, and passes all others to `app`.

    The check of tokens stands in front. With `needs_user`, a request without a principal goes to `app`, which refuses it.
    If no node holds the session, `app` answers as for every unknown session. If its node has ended, the answer has the same
    status, and says how to go on. A client that leaves is reported to the node that answers; its request is not cancelled.
    """

    def __init__(
        self, app: ASGIApp, gateway: Gateway, streams: OpenStreams, *, needs_user: bool
    ) -> None:
        self._app = app
        self._gateway = gateway
        self._streams = streams
        self._needs_user = needs_user
        self._own = session_prefix(gateway.node.id)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        peers = self._gateway.peers
        node = None if peers is None or scope["type"] != "http" else _node_of(scope)
        if peers is None or node is None or node == self._own:
            return self._app(scope, receive, send)
        if self._needs_user and not isinstance(scope.get("user"), VerifiedCaller):
            return self._app(scope, receive, send)
        answer = partial(self._answer, peers, f"{_NODE}{node}")
        return self._streams.run(answer, scope, receive, send)

    async def _answer(
        self, peers: Peers, node: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        body, messages = await read_body(receive)
        if body is None:
            # The client has left, or sent too much.
            await self._app(scope, replay_messages(messages, receive), send)
            return
        relay = _Relay(body, send)
        try:
            if not await self._pass_on(peers, node, scope, receive, relay):
                await self._app(scope, replay_messages(messages, receive), send)
        except NodeUnreachable as error:
            if error.is_silent or await self._may_live(node):
                await _silent_node()(scope, receive, send)
            elif scope["path"].startswith(_MESSAGES):
                await self._app(scope, replay_messages(messages, receive), send)
            else:
                await _ended_node()(scope, receive, send)

    async def _may_live(self, node: str) -> bool:
        """Whether a node that cannot be reached may still hold its sessions. Without a cluster, it has ended."""
        if not self._gateway.config.cluster.enabled:
            return False
        try:
            return await self._gateway.node.find(node) is not None
        except StoreUnavailable:
            return True

    async def _pass_on(
        self, peers: Peers, node: str, scope: Scope, receive: Receive, relay: _Relay
    ) -> bool:
        """Pass on a request and its response. Return False if the node does not hold the session.

        Raises:
            NodeUnreachable: the node has not begun the request, and will not.
        """
        is_stream = scope["method"] == "GET"
        counted: AbstractContextManager[None] = (
            nullcontext() if is_stream else peers.count_request()
        )
        request, assertion = _request(scope, relay.body), self._assertion(scope)
        is_held = True
        failure: NodeUnreachable | None = None
        with counted:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
                try:
                    async with peers.exchange(
                        node, request, assertion, takes_place=not is_stream
                    ) as connection:
                        is_held = await relay.run(connection)
                except NodeUnreachable as error:
                    # Raised below, since the task group would wrap it.
                    failure = error
                except ConnectionEnded:
                    await relay.report_loss()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return is_held

    def _assertion(self, scope: Scope) -> Assertion:
        user: object = scope.get("user")
        is_known = isinstance(user, VerifiedCaller)
        principal = user.principal if is_known else LOCAL
        return Assertion(principal, self._gateway.config.namespace)


def _request(scope: Scope, body: bytes) -> NodeRequest:
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if name in _HEADERS or name.startswith(_MCP_HEADERS)
    ]
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    return NodeRequest(scope["method"], f"{path}?{query}" if query else path, headers, body)


def _node_of(scope: Scope) -> str | None:
    """Return the node that the transport session of a request names, None if there is none."""
    if scope["method"] not in _METHODS:
        return None
    for name, value in scope["headers"]:
        if name == SESSION:
            match = _SESSION_ID.fullmatch(value)
            return None if match is None else match[1].decode()
    path = _MESSAGES_PATH.fullmatch(scope["path"])
    return None if path is None else path[1]


class _Relay:
    """Passes the response of another node on to the client."""

    def __init__(self, body: bytes, send: Send) -> None:
        self.body = body
        """The body of the request."""
        self._send = send
        self._is_begun = False

    async def run(self, connection: NodeConnection) -> bool:
        """Pass on all parts of the response. Return False if the node does not serve this client.

        Raises:
            ConnectionEnded: the node ended before the last part.
        """
        status, headers = await connection.head()
        if status == NOT_OWNER:
            await connection.read()
            return False
        kept = [(name, value) for name, value in headers if name not in _OWN_HEADERS]
        self._is_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": kept})
        while part := await connection.read():
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})
        return True

    async def report_loss(self) -> None:
        """Answer the request with an error, because the node ended while it ran."""
        error = JSONRPCError(
            jsonrpc="2.0",
            id=_request_id(self.body),
            error=ErrorData(
                code=CONNECTION_CLOSED,
                message="The process that holds the connection of this client ended during the request.",
            ),
        ).model_dump(mode="json", by_alias=True)
        if self._is_begun:
            event = b"" if error["id"] is None else encode_event(error)
            await self._send({"type": "http.response.body", "body": event, "more_body": False})
            return
        response = JSONResponse(error, status_code=502)
        start = {"type": "http.response.start", "status": 502, "headers": response.raw_headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": response.body, "more_body": False})


def _request_id(body: bytes) -> str | int | None:
    try:
        message: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    request_id: object = cast("JSON", message).get("id") if isinstance(message, dict) else None
    return request_id if isinstance(request_id, str | int) else None


def _silent_node() -> Response:
    error = ErrorData(
        code=CONNECTION_CLOSED,
        message="The process that holds the connection of this client does not answer. Try again later.",
    )
    return _refusal(error, 503)


def _ended_node() -> Response:
    # Most clients do not initialize again by themselves, but show this to their person or model.
    error = ErrorData(
        code=INVALID_REQUEST,
        message=(
            "Session not found: Statehold was restarted, and this MCP connection has ended. The call did not run. Connect "
            "the MCP client again; a session_id stays valid."
        ),
    )
    return _refusal(error, 404)


def _refusal(error: ErrorData, status: int) -> Response:
    body = JSONRPCError(jsonrpc="2.0", id=None, error=error)
    return JSONResponse(body.model_dump(mode="json", by_alias=True), status_code=status)
