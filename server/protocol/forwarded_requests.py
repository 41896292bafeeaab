"""Requests that another node has forwarded, answered as if their client were connected to this node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from pydantic import ValidationError

from ...sessions.cluster.placement import place_here
from ...sessions.errors import NodeUnavailable, OwnedByAnotherNode
from ...sessions.json_codec import JSON, dumps, loads
from ...sessions.owned_map import OwnedMap
from ...tools.upstream.transports.trace_context import is_tracing
from ..cluster.assertion import Assertion
from ..cluster.node_messages import ForwardedRequest, error_message
from ..cluster.owner import AnswerLines, NotOwner
from ..sdk.access import RequestContext
from ..sdk.caller import (
    AUTO_SCOPE,
    DELIVERY_SCOPE,
    LOG_LEVEL,
    OWNER_SCOPE,
    PIN_SCOPE,
    PRINCIPAL_SCOPE,
    SESSION_SCOPE,
    SHAREE_SCOPE,
    progress_params,
)

MAX_NOTICES: Final = 256
"""Notices that are kept until a further one, in case that their answers are not delivered."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """Stands in for the HTTP request of a context."""

    scope: JSON


class _RequestChannel:
    """The SDK's DispatchContext of one forwarded request: its messages go to the node that received the request."""

    headers = ()

    def __init__(
        self, request: ForwardedRequest, answer_lines: AnswerLines, origin: _Origin
    ) -> None:
        self._request = request
        self._answer_lines = answer_lines
        self.transport = TransportContext(kind="forwarded", can_send_request=request.can_ask)
        self.message_metadata = ServerMessageMetadata(request_context=origin)
        self.request_id = 0

    @property
    def can_send_request(self) -> bool:
        return self._request.can_ask

    @property
    def cancel_requested(self) -> anyio.Event:
        # Never set: the task of a cancelled request is cancelled.
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._answer_lines.ask(method, None if params is None else dict(params))

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._answer_lines.notify(method, None if params is None else dict(params))

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        meta: JSON = (self._request.params or {}).get("_meta") or {}
        token = meta.get("progressToken")
        if token is None:
            return
        params = progress_params(token, progress, total, message)
        await self.notify("notifications/progress", params)


class ForwardedRequests:
    """Answers forwarded requests with one server. Between requests it keeps the notices of the last answers.

    `call` answers a tool call; `return_notice` makes the notice of an undelivered answer due again.
    """

    def __init__(
        self,
        server: Server[Any],
        call: Callable[[RequestContext], Awaitable[JSON]],
        return_notice: Callable[[RequestContext], None],
    ) -> None:
        self._server = server
        self._call = call
        self._return_notice = return_notice
        self._numbers = count(1)
        self._noticed = OwnedMap[int, RequestContext](MAX_NOTICES)
        """The contexts of answers that carry a notice, by the number of the notice."""

    async def answer(
        self, request: ForwardedRequest, assertion: Assertion, answer_lines: AnswerLines
    ) -> JSON:
        """Return the last message about a request.

        Raises:
            NotOwner: this node does not own the session any more, or ends; nothing ran.
        """
        scope: JSON = {
            PRINCIPAL_SCOPE: assertion.principal,
            PIN_SCOPE: request.pin,
            AUTO_SCOPE: request.is_auto,
            SESSION_SCOPE: assertion.session_id,
        }
        if request.sharee is not None:
            scope[OWNER_SCOPE] = assertion.principal
            scope[SHAREE_SCOPE] = request.sharee
        channel = _RequestChannel(request, answer_lines, _Origin(scope))
        capabilities = dumps(request.capabilities or {})
        connection = _call_connection(request.version, capabilities, request.log_level)
        context = _context(request, channel, connection)
        try:
            with place_here() if assertion.adopt else nullcontext():
                if request.method == "tools/call" and not is_tracing():
                    message: JSON = {"result": await self._call(context)}
                else:
                    message = {"result": await self._run(request, channel)}
        except MCPError as error:
            message = error_message(error)
        except ValidationError:
            error = MCPError(code=types.INVALID_PARAMS, message="Invalid request parameters")
            message = error_message(error)
        except (OwnedByAnotherNode, NodeUnavailable):
            raise NotOwner from None
        if DELIVERY_SCOPE in scope:
            message["notice"] = number = next(self._numbers)
            self._noticed.put(assertion.principal.key, number, context)
        return message

    def return_notice(self, number: int) -> None:
        """Make the notice of an answer due again, because the answer was not delivered. A second call does nothing."""
        context = self._noticed.pop(number)
        if context is not None:
            self._return_notice(context)

    async def _run(self, request: ForwardedRequest, channel: _RequestChannel) -> JSON:
        """Answer a request with the SDK's handlers, which may keep something with the connection."""
        connection = _new_connection(request.version, request.capabilities or {}, request.log_level)
        runner = ServerRunner(self._server, connection, {})
        try:
            return await runner.on_request(channel, request.method, request.params)
        finally:
            await aclose_shielded(connection)


def _new_connection(version: str, capabilities: JSON, log_level: str | None) -> Connection:
    connection = Connection.from_envelope(version, None, capabilities)
    if log_level is not None:
        connection.state[LOG_LEVEL] = log_level
    return connection


@lru_cache(maxsize=64)
def _call_connection(version: str, capabilities: str, log_level: str | None) -> Connection:
    """Return the SDK's connection for tool calls of such clients. Calls share it: they keep nothing with it."""
    return _new_connection(version, loads(capabilities), log_level)


def _context(
    request: ForwardedRequest, channel: _RequestChannel, connection: Connection
) -> RequestContext:
    meta = cast("types.RequestParamsMeta | None", (request.params or {}).get("_meta"))
    return RequestContext(
        session=ServerSession(channel, connection, request_meta=meta),
        lifespan_context=cast("Any", {}),
        protocol_version=request.version,
        method=request.method,
        params=request.params,
        request_id=channel.request_id,
        meta=meta,
        request=channel.message_metadata.request_context,
    )
