"""The fast path of tool calls over Streamable HTTP, in front of the SDK's HTTP applications.

Most requests are plain tool calls, and for each the SDK does much more work than the call itself. The fast path gives the
same answers. It passes every unusual request, and every one that has to be refused, to the SDK with its body unread. Host,
Origin and token are checked before; see HttpApplication.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Container
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Final, Protocol, cast

import anyio
from anyio.abc import TaskGroup
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import validate_mcp_param_headers
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from ...access.claims import VerifiedCaller
from ...sessions.json_codec import JSON
from ..asgi import replay_messages
from ..plain_calls import modern_connection, parse_call, parse_message
from ..protocol.server import StateholdServer
from ..sdk.caller import PIN_SCOPE
from .exchange import (
    METHOD,
    NAME,
    PARAM,
    PING_SECONDS,
    VERSION,
    AcceptedResponse,
    CallResponse,
    Head,
    PlainRequest,
    read_body,
    read_head,
)
from .legacy_era import LegacyEra

logger = logging.getLogger("statehold.server")

WATCH_SECONDS: Final = 0.05
"""Seconds that a call runs before a task watches whether its client is still connected."""

_PINNED: Final = re.compile("/s/([^/]+)/mcp")


class Era(Protocol):
    """Recognises the requests of one protocol era and creates their responses."""

    def in_flight(self) -> AbstractContextManager[None]:
        """Keep the transport session of a request from ending as idle."""
        ...

    def accept(
        self, request: PlainRequest, message: JSON
    ) -> CallResponse | AcceptedResponse | None:
        """Return the response of a request, None when the SDK has to answer it."""
        ...


class FastPath:
    """Answers plain tool calls itself and passes other requests to `app`. Lives while run() is open.

    With `manager`, calls in its transport sessions take the fast path, too. With `needs_user`, requests without a principal
    go to `app`, which refuses them.
    """

    def __init__(
        self,
        app: ASGIApp,
        server: StateholdServer,
        manager: StreamableHTTPSessionManager | None = None,
        *,
        needs_user: bool = False,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._app = app
        self._server = server
        self._modern = ModernEra(server)
        self._legacy = None if manager is None else LegacyEra(server, manager)
        self._needs_user = needs_user
        self._ping_seconds = ping_seconds
        self._open_calls: dict[CallResponse, None] = {}
        self._call_opened = anyio.Event()
        self.running = False

    @property
    def in_flight(self) -> int:
        return len(self._open_calls)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, tasks)
            self.running = True
            try:
                yield
            finally:
                self.running = False
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        recognised_request = self._recognise(scope, receive, send)
        if recognised_request is None:
            await self._app(scope, receive, send)
            return
        era, request = recognised_request
        with era.in_flight():
            body, messages = await read_body(receive)
            message = None if body is None else parse_message(body)
            response = None if message is None else era.accept(request, message)
            if response is None:
                await self._app(scope, replay_messages(messages, receive), send)
            elif isinstance(response, AcceptedResponse):
                await response.send(send)
            else:
                self._open_calls[response] = None
                self._call_opened.set()
                try:
                    await response.respond(self._server)
                finally:
                    del self._open_calls[response]

    def _recognise(
        self, scope: Scope, receive: Receive, send: Send
    ) -> tuple[Era, PlainRequest] | None:
        """Return a request that may be a plain tool call, with its era. Stores the session of its URL in the scope."""
        if scope["type"] != "http":
            return None
        if scope["path"] != "/mcp":
            match = _PINNED.fullmatch(scope["path"])
            if match is None:
                return None
            scope[PIN_SCOPE] = match[1]
        if scope["method"] != "POST" or not self.running:
            return None
        if self._needs_user and not isinstance(scope.get("user"), VerifiedCaller):
            return None
        head = read_head(scope)
        if head is None:
            return None
        era: Era | None = None
        if self._modern.matches(head):
            era = self._modern
        elif self._legacy is not None:
            era = self._legacy.session(head, scope.get("user"))
        return None if era is None else (era, PlainRequest(head, scope, receive, send))

    def end_of(self, revoked: Container[str]) -> None:
        """End the calls of the principals with these keys. They are answered with an error."""
        for response in list(self._open_calls):
            user: object = response.request.scope.get("user")
            if not isinstance(user, VerifiedCaller):
                continue
            if user.principal.key in revoked:
                response.revoke()

    async def _watch(self, tasks: TaskGroup) -> None:
        """Watch the clients of calls that run longer than WATCH_SECONDS; for shorter calls a task would cost too much."""
        while True:
            await self._call_opened.wait()
            await anyio.sleep(WATCH_SECONDS)
            if not self._open_calls:
                self._call_opened = anyio.Event()
                continue
            latest = anyio.current_time() - WATCH_SECONDS
            for response in list(self._open_calls):
                if response.started_at <= latest and not response.is_watched:
                    response.is_watched = True
                    tasks.start_soon(self._watch_client, response)

    async def _watch_client(self, response: CallResponse) -> None:
        try:
            await response.watch(self._ping_seconds)
        except Exception:
            logger.exception("watching the client of an HTTP call failed")


_VERSIONS: Final = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)


class ModernEra:
    """Recognises the calls of 2026-07-28. It keeps no state between requests."""

    def __init__(self, server: StateholdServer) -> None:
        self._server = server

    def matches(self, head: Head) -> bool:
        """Whether the headers are those of a tool call."""
        return head.get(VERSION) in _VERSIONS and head.get(METHOD) == b"tools/call" and NAME in head

    def in_flight(self) -> AbstractContextManager[None]:
        """Do nothing: there is no transport session that could end as idle."""
        return nullcontext()

    def accept(self, request: PlainRequest, message: JSON) -> CallResponse | None:
        """Return the response of a request, None if the request is not certainly a call."""
        call = parse_call(message)
        if call is None:
            return None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.head.items()
            if name in (VERSION, METHOD, NAME) or name.startswith(PARAM)
        }
        connection = modern_connection(message, headers)
        if connection is None or not self._agrees(call.params, headers):
            return None
        return CallResponse(request, call, connection)

    def _agrees(self, params: JSON, headers: dict[str, str]) -> bool:
        """Whether the tool is known and the `Mcp-Param-*` headers agree with its arguments."""
        catalog = self._server.catalog
        name: str = params["name"]
        schema = catalog.schemas.get(name)
        if schema is None:
            return False
        if name not in catalog.with_headers:
            return True
        arguments = cast("JSON", params.get("arguments") or {})
        return validate_mcp_param_headers(schema, arguments, headers) is None
