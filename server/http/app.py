"""One Starlette application: /mcp and /sse in both eras, /s/{session}/mcp pinned, /health and /livez."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.runner import serve_dual_era_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..auth.tokens import StaticTokens
from ..auth.wrong_tokens import SlowedBearerAuth
from ..gateway.gateway import Gateway
from ..protocol.server import PIN_SCOPE, StateholdServer
from ..sdk.access import TransportSessions
from .fast_path import FastPath
from .fast_request import WholeBody
from .host_check import HostCheck


class TokenFile(TokenVerifier):
    """The SDK's view of a file of static bearer tokens."""

    def __init__(self, tokens: StaticTokens) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        found = self._tokens.principal(token)
        if found is None:
            return None
        return AccessToken(
            token=token,
            client_id=found.client_id,
            scopes=[],
            subject=found.subject,
            claims={"iss": found.issuer},
        )


class Sse:
    """The GET side of HTTP+SSE (2024-11-05): one connection, in the era its first request decides."""

    def __init__(self, face: StateholdServer, transport: SseServerTransport) -> None:
        self._face = face
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            # Not Server.run(): it would enter the lifespan once per connection.
            await serve_dual_era_loop(
                self._face,
                read,
                write,
                lifespan_state={},
                init_options=self._face.create_initialization_options(),
            )


class Pinned:
    """Adds the session that the URL names to the ASGI scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PIN_SCOPE] = scope["path_params"]["session"]
        await self._app(scope, receive, send)


class Shortcut:
    """Passes requests of one path directly to its application, without the router and the exception handlers."""

    def __init__(self, app: ASGIApp, *, path: str, to: ASGIApp) -> None:
        self._app = app
        self._path = path
        self._to = to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        straight = scope["type"] == "http" and scope["path"] == self._path
        await (self._to if straight else self._app)(scope, receive, send)


def build_app(
    gateway: Gateway, face: StateholdServer, tokens: StaticTokens | None = None
) -> Starlette:
    """Return the application of an open gateway. Its lifespan runs the MCP transports and ends their streams."""
    manager = TransportSessions(face, gateway.config.http)
    sse = SseServerTransport("/messages/")
    mcp = FastPath(WholeBody(StreamableHTTPASGIApp(manager)), face, manager)

    def guarded(app: ASGIApp) -> ASGIApp:
        return app if tokens is None else RequireAuthMiddleware(app, [])

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run(), mcp.run():
            try:
                yield
            finally:
                face.stop_listening()

    async def livez(request: Request) -> Response:
        # Another process reads from it which Statehold has the port.
        return JSONResponse({"status": "ok", "server": "statehold", "pid": os.getpid()})

    async def health(request: Request) -> Response:
        found = gateway.health()
        return JSONResponse(found, status_code=200 if found["status"] == "ok" else 503)

    routes = [
        Route("/mcp", endpoint=guarded(mcp)),
        Route("/s/{session}/mcp", endpoint=guarded(Pinned(mcp))),
        Route("/sse", endpoint=guarded(Sse(face, sse)), methods=["GET"]),
        Mount("/messages/", app=guarded(WholeBody(sse.handle_post_message))),
        Route("/livez", endpoint=livez, methods=["GET"]),
        Route("/health", endpoint=health, methods=["GET"]),
    ]
    shortcut = Middleware(Shortcut, path="/mcp", to=guarded(mcp))
    middleware = [*_middleware(gateway, tokens), shortcut]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


def _middleware(gateway: Gateway, tokens: StaticTokens | None) -> list[Middleware]:
    settings = gateway.config.server
    found = [
        Middleware(
            HostCheck,
            hosts=[settings.host, *settings.allowed_hosts],
            origins=settings.allowed_origins,
        )
    ]
    if tokens is not None:
        found.append(
            Middleware(AuthenticationMiddleware, backend=SlowedBearerAuth(TokenFile(tokens)))
        )
        found.append(Middleware(AuthContextMiddleware))
    return found


__all__ = ["build_app"]
