"""The routes of the HTTP application, from the application itself, so that a test of all routes forgets none."""

from __future__ import annotations

import re
from typing import Any, Final

from mcp.server.lowlevel import Server
from starlette.routing import BaseRoute, Mount, Route

from statehold.access.verifier import verifier_of
from statehold.console.app import Console, SecurityHeaders
from statehold.server.gateway.gateway import Gateway
from statehold.server.http.app import HttpApplication
from statehold.server.protocol.server import StateholdServer

METHODS: Final = {
    "/mcp": {"GET", "POST", "DELETE"},
    "/s/{session}/mcp": {"GET", "POST", "DELETE"},
}
"""The methods of routes that take any."""


def routes_of(gateway: Gateway, server: Server[Any]) -> set[tuple[str, str]]:
    """Return the method and the path of each route, with the parameters of the path in braces."""
    assert isinstance(server, StateholdServer)
    verifier = verifier_of(None, gateway.config.auth)
    application = HttpApplication(gateway, server, verifier, Console(gateway).routes())
    return {
        (method, path)
        for route in application.routes
        for methods, path in _paths(route)
        for method in METHODS.get(path, methods or {"GET", "POST"})
        if method != "HEAD"
    }


def filled_routes(gateway: Gateway, server: Server[Any]) -> set[tuple[str, str]]:
    """Return the same with `x` in the place of each parameter."""
    return {(m, re.sub(r"\{[^}]*\}", "x", path)) for m, path in routes_of(gateway, server)}


def _paths(route: BaseRoute) -> list[tuple[set[str] | None, str]]:
    if isinstance(route, Route):
        return [(route.methods, route.path)]
    assert isinstance(route, Mount)
    inner = route.app.routes if isinstance(route.app, SecurityHeaders) else []
    below = [(m, f"{route.path}{path}") for each in inner for m, path in _paths(each)]
    return below or [(None, f"{route.path}/")]


__all__ = ["filled_routes", "routes_of"]
