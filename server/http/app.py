"""The HTTP application: /mcp and /sse in both eras, /s/{session}/mcp pinned, /health, /livez, /readyz, and its own card."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from importlib.metadata import metadata
from urllib.parse import urlsplit

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from ...access.challenges import METADATA_HEADERS, Challenges, PublicUrls, ResourceMetadata
from ...access.scopes import OperationScopes
from ...access.verifier import Verifier
from ...tools.own.toolsets import own_names
from ..gateway.gateway import Gateway, health_of, readiness_of
from ..protocol.server import StateholdServer
from ..sdk.http_sessions import TransportSessions
from . import server_card
from .authentication import Authentication
from .exchange import WholeBody
from .fast_path import FastPath
from .foreign_sessions import ForeignSessions, session_prefix
from .host_check import HostCheck
from .open_streams import OpenStreams
from .sse import Sse


class HttpApplication:
    """The HTTP application. Its lifespan runs the MCP transports and ends their streams.

    A request passes the checks of Host and Origin, then the check of its token, then the fast path. One that it does not
    take goes to the node that holds its transport session, or to the routes. The code that reads a message checks its size
    and depth. For the clients of other nodes, it is a ClientApplication.
    """

    def __init__(
        self,
        gateway: Gateway,
        server: StateholdServer,
        verifier: Verifier | None = None,
        more_routes: Sequence[BaseRoute] = (),
    ) -> None:
        """Without a verifier, callers need no token. `more_routes` check their callers themselves."""
        self._gateway = gateway
        self._server = server
        self._session_prefix = session_prefix(gateway.node.id)
        self._manager = TransportSessions(
            server, gateway.config.http, prefix=f"{self._session_prefix}."
        )
        self.is_running = False
        self.needs_user = needs_user = verifier is not None
        settings, auth = gateway.config.server, gateway.config.auth
        urls = PublicUrls(settings.public_url or "" if auth.enabled else "")
        public = [*self._public_routes(), *more_routes]
        if auth.enabled:
            issuers = [settings.public_url or ""] if auth.facade.enabled else []
            issuers += [issuer.issuer for issuer in auth.issuers]
            public += ResourceMetadata(urls, issuers).routes()
        routes = Starlette(routes=[*self._mcp_routes(), *public], lifespan=self._lifespan)
        # A redirect would name the scheme and the host of the request, which behind a proxy may be others.
        routes.router.redirect_slashes = False
        self.routes = routes.routes
        """All routes, for a test of each."""
        challenges = Challenges(urls)
        self.streams = OpenStreams(challenges)
        # The calls of the fast path are no streams.
        app = self.streams.wrap(routes)
        app = ForeignSessions(app, gateway, self.streams, needs_user=needs_user)
        app = self.fast_path = FastPath(app, server, self._manager, needs_user=needs_user)
        if needs_user:
            app = AuthContextMiddleware(app)
            gateway.registry.revocations.on_look.append(self._end_revoked)
        self.behind_tokens: ASGIApp = app
        if verifier is not None:
            scopes = OperationScopes(own_names(gateway.config.toolsets, shares=True))
            app = Authentication(
                app=app,
                verifier=verifier,
                challenges=challenges,
                scopes=scopes,
                public=public,
                rights=gateway.registry.policies,
                audit=gateway.audit,
                refused=gateway.registry.core.metrics.refused_tokens,
            )
        self.asgi = HostCheck(
            app,
            hosts=[settings.host, *settings.allowed_hosts],
            # The proxy in front of the page of consent may not say that it speaks TLS.
            origins=[*settings.allowed_origins, *([urls.origin] if auth.facade.enabled else [])],
            audit=gateway.audit,
            mounts=[route.path for route in self.routes if isinstance(route, Mount)],
        )

    def _end_revoked(self) -> None:
        revoked = self._gateway.registry.core.revoked
        self.streams.end_of(revoked)
        self.fast_path.end_of(revoked)
        self._manager.end_of(revoked)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        async with self._manager.run(), self.fast_path.run():
            self.is_running = True
            try:
                yield
            finally:
                self.is_running = False
                self._server.stop_listening()

    def _mcp_routes(self) -> list[BaseRoute]:
        # The path names this node, as the ids of its transport sessions do.
        sse = SseServerTransport(f"/messages/{self._session_prefix}/")
        mcp = WholeBody(StreamableHTTPASGIApp(self._manager))
        return [
            Route("/mcp", endpoint=mcp),
            Route("/s/{session}/mcp", endpoint=mcp),
            Route("/sse", endpoint=Sse(self._server, sse), methods=["GET"]),
            Mount("/messages/", app=WholeBody(sse.handle_post_message)),
        ]

    def _public_routes(self) -> list[BaseRoute]:
        return [
            Route("/livez", endpoint=self._livez, methods=["GET"]),
            Route("/readyz", endpoint=self._readyz, methods=["GET"]),
            Route("/health", endpoint=self._health, methods=["GET"]),
            Route(server_card.CARD_PATH, endpoint=self._card, methods=["GET"]),
            Route(server_card.CATALOG_PATH, endpoint=self._catalog, methods=["GET"]),
        ]

    async def _card(self, request: Request) -> Response:
        url, domain = self._address_for(request)
        summary, version = metadata("statehold")["Summary"], self._server.version or ""
        description = server_card.describe(domain, summary, version)
        card = server_card.card(description, f"{url}/mcp")
        return JSONResponse(card, headers=METADATA_HEADERS, media_type=server_card.CARD_TYPE)

    async def _catalog(self, request: Request) -> Response:
        url, domain = self._address_for(request)
        catalog = server_card.catalog(domain, url=f"{url}{server_card.CARD_PATH}")
        return JSONResponse(catalog, headers=METADATA_HEADERS, media_type=server_card.CATALOG_TYPE)

    def _address_for(self, request: Request) -> tuple[str, str]:
        """Return URL and host of this server: without a setting, as the client wrote them."""
        url = self._gateway.config.server.public_url or str(request.base_url).rstrip("/")
        return url, (urlsplit(url).hostname or "").replace(":", ".")

    async def _livez(self, request: Request) -> Response:
        # Read by holder_of() in another process that finds the port in use.
        return JSONResponse({"status": "ok", "server": "statehold", "pid": os.getpid()})

    async def _readyz(self, request: Request) -> Response:
        status_code, status = readiness_of(self._gateway)
        return JSONResponse({"status": status}, status_code=status_code)

    async def _health(self, request: Request) -> Response:
        health = health_of(self._gateway)
        return JSONResponse(health, status_code=200 if health["status"] == "ok" else 503)
