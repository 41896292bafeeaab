"""Host and Origin checks in front of all HTTP applications of this process.

A web page can reach a loopback port if it rebinds the DNS name of its own host to 127.0.0.1 (2026-07-28, basic/transports:
servers MUST validate Origin). A Host that is an IP address cannot have been rebound; a name has to be an allowed one.

Pages of other origins that are allowed are clients: the preflights of their browsers are answered here, with the headers of
CORS. Browsers send no cookies with these requests, so that the console is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...access.audit.recorder import NOBODY, Actor, Audit
from ...access.challenges import METADATA, SERVER_METADATA, is_resource
from ...access.refusals import RefusalLog
from ...sessions.principals.audit_log import AuditEvent
from ..asgi import without_slash
from .server_card import CARD_PATH, CATALOG_PATH

EXPOSED: Final = "Mcp-Session-Id, WWW-Authenticate"
PREFLIGHT_SECONDS: Final = "600"
_METHODS: Final = "GET, POST, DELETE"
_OTHERS: Final = ("/token", "/register", "/revoke")
"""The paths of the authorization server to which clients send requests themselves."""
_NAMES: Final = re.compile(rb"[A-Za-z0-9-]+(?:[ \t]*,[ \t]*[A-Za-z0-9-]+)*")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOGGED_CHARACTERS: Final = 200
MAX_CACHED_HOSTS = 64
"""Allowed hosts that are cached. Clients could send any number of addresses, so the cache is limited."""

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{0,5})?")
"""RFC 9110, 7.2, without the percent-encoded names that no client sends."""


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


class HostCheck:
    """Answers 400 to several Hosts, 421 to a wrong Host and 403 to a foreign Origin; passes everything else to `app`.
    The origin of the server itself is never foreign: a browser gives it to pages that this server sent. Pages of other
    allowed origins get the headers of CORS with the answers of MCP, and an answer to their preflights.

    A WebSocket is checked in the same way, and closed instead of answered. Pages of every origin may read the metadata.
    With `mounts`, `app` gets a path that ends with a slash without it, unless the path is below one of them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        origins: Iterable[str],
        audit: Audit | None = None,
        mounts: Iterable[str] | None = None,
    ) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}
        self._allowed_hosts: set[bytes] = set()
        self._refusals = RefusalLog()
        self._audit = audit
        self._mounts = None if mounts is None else tuple(f"{mount}/" for mount in mounts)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        answer = self._answer(scope) if scope["type"] in ("http", "websocket") else None
        if self._mounts is not None and scope.get("path", "").endswith("/"):
            scope = without_slash(scope, self._mounts)
        if answer is None:
            return self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return send({"type": "websocket.close", "code": 1008})
        return answer(scope, receive, send)

    def _answer(self, scope: Scope) -> ASGIApp | None:
        """Return the refusal of a request, or the application for one of a page of another origin that is allowed. None:
        that is the same as for every request.
        """
        all_headers: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(all_headers)
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if len(headers) < len(all_headers):
            names = [name for name, _ in all_headers]
            if names.count(b"host") > 1:
                self._log("several Hosts", b"", scope)
                return PlainTextResponse("More than one Host header", 400)
            if names.count(b"origin") > 1:
                self._log("several Origins", b"", scope)
                return PlainTextResponse("Invalid Origin header", 403)
        host = b"" if host is None else host.strip(b" \t")
        if host not in self._allowed_hosts and not self._check_host(host):
            return self._refuse("wrong Host", host, scope, 421, "server.allowed_hosts")
        if origin is None or _is_same_origin(origin, scope, host):
            return None
        if scope.get("path", "").startswith((METADATA, SERVER_METADATA, CARD_PATH, CATALOG_PATH)):
            return None
        if not self.origin_allowed(origin.decode("latin-1").strip(" \t")):
            return self._refuse("foreign Origin", origin, scope, 403, "server.allowed_origins")
        if scope["type"] == "http" and is_for_pages(scope["path"]):
            return answer_to_page(self._app, scope["method"], origin, headers)
        return None

    def _refuse(
        self, kind: str, value: bytes, scope: Scope, status: int, setting: str
    ) -> PlainTextResponse:
        """Log a header that a setting could allow, and return the refusal, which names both."""
        self._log(kind, value, scope, f"not in {setting}: ")
        shown = repr(value.decode("latin-1")[:LOGGED_CHARACTERS])
        text = f"Invalid {kind.split()[-1]} header: {shown} is not in {setting}"
        return PlainTextResponse(text, status, {"x-content-type-options": "nosniff"})

    def _log(self, kind: str, value: bytes, scope: Scope, reason: str = "") -> None:
        client = scope.get("client")
        detail = value.decode("latin-1")[:LOGGED_CHARACTERS]
        address = client[0] if client else ""
        self._refusals.add(f"{reason}{kind}", address, detail and repr(detail))
        if self._audit is not None:
            outcome = kind.lower().replace(" ", "_")
            actor = Actor(principal=NOBODY, transport="http", address=address)
            self._audit.record(AuditEvent.REFUSAL, actor, scope["path"][:128], outcome)

    def _check_host(self, host: bytes) -> bool:
        is_allowed = self.host_allowed(host.decode("latin-1"))
        if is_allowed and len(self._allowed_hosts) < MAX_CACHED_HOSTS:
            self._allowed_hosts.add(host)
        return is_allowed

    def host_allowed(self, host: str) -> bool:
        host = host.lower()
        name = _parse_host(host)
        if name is None:
            return False
        return name in LOOPBACK or _is_address(name) or _is_listed(host, name, self._hosts)

    def origin_allowed(self, origin: str | None) -> bool:
        if origin is None:
            return True
        origin = origin.lower()
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        name = _parse_host(host)
        if not separator or scheme not in ("http", "https") or name is None:
            return False
        return name in LOOPBACK or f"{scheme}://{name}:*" in self._origins


def _is_same_origin(origin: bytes, scope: Scope, host: bytes) -> bool:
    """Whether a request comes from a page of this server itself, whose Host is allowed."""
    scheme: str = scope.get("scheme", "http")
    return origin.lower() == scheme.encode() + b"://" + host.lower()


def _parse_host(host: str) -> str | None:
    """Return the name or the IP address in a lower-case Host header, None if the header is malformed."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    literal, name = match.groups()
    return name if literal is None else literal if _is_address(literal) else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_listed(host: str, name: str, hosts: set[str]) -> bool:
    return host in hosts or name in hosts or f"{name}:*" in hosts
