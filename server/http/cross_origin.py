"""Clients that are pages of another origin: the preflights of their browsers, and the headers of CORS.

The check of Origin stands in front. Browsers send no cookies with these requests, so that the console is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...access.challenges import is_resource

EXPOSED: Final = "Mcp-Session-Id, WWW-Authenticate"
PREFLIGHT_SECONDS: Final = "600"
_METHODS: Final = "GET, POST, DELETE"
_OTHERS: Final = ("/token", "/register", "/revoke")
"""The paths of the authorization server to which clients send requests themselves."""
_NAMES: Final = re.compile(rb"[A-Za-z0-9-]+(?:[ \t]*,[ \t]*[A-Za-z0-9-]+)*")


def is_for_pages(path: str) -> bool:
    """Whether clients send requests to a path, with a token instead of a cookie."""
    path = path.removesuffix("/")
    return path in _OTHERS or path.startswith("/messages/") or (path != "" and is_resource(path))


def answer_to_page(
    app: ASGIApp, method: str, origin: bytes, headers: Mapping[bytes, bytes]
) -> ASGIApp:
    """Return the application that answers a request of a page of an allowed origin."""
    allowed = {"access-control-allow-origin": origin.decode("latin-1").strip(), "vary": "origin"}
    if method != "OPTIONS" or b"access-control-request-method" not in headers:
        return _WithHeaders(app, {**allowed, "access-control-expose-headers": EXPOSED})
    names = headers.get(b"access-control-request-headers", b"").strip()
    if _NAMES.fullmatch(names):
        # A wildcard does not include Authorization, and the headers of parameters have any names.
        allowed["access-control-allow-headers"] = names.decode()
    allowed["access-control-allow-methods"] = _METHODS
    allowed["access-control-max-age"] = PREFLIGHT_SECONDS
    return Response(status_code=204, headers=allowed)


class _WithHeaders:
    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, partial(self._send, send))

    async def _send(self, send: Send, message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(self._headers)
        await send(message)
