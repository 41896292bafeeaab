"""Host and Origin checks in front of all HTTP applications of this process.

A page in a browser can reach a loopback port through a name that it rebinds (2026-07-28, basic/transports: servers MUST
validate Origin). A Host that is an address literal cannot have been rebound; a name has to be one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from ipaddress import ip_address
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
KNOWN = 64
"""Allowed hosts that are remembered; clients could send any number of addresses."""

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{0,5})?")
"""RFC 9110, 7.2, without the percent-encoded names that no client sends."""


class HostCheck:
    """Answers 400 to several Hosts, 421 to a wrong one and 403 to a foreign Origin; everything else goes on to `app`.

    A WebSocket is checked in the same way, and closed instead of answered.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}
        self._known: set[bytes] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            return self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return send({"type": "websocket.close", "code": 1008})
        return refusal(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        host: bytes | None = None
        origin: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return PlainTextResponse("More than one Host header", 400)
                host = value
            elif name == b"origin":
                if origin is not None:
                    return PlainTextResponse("Invalid Origin header", 403)
                origin = value
        host = b"" if host is None else host.strip(b" \t")
        if host not in self._known and not self._host_allowed(host):
            return PlainTextResponse("Invalid Host header", 421)
        if origin is not None and not self.origin_allowed(origin.decode("latin-1").strip(" \t")):
            return PlainTextResponse("Invalid Origin header", 403)
        return None

    def _host_allowed(self, host: bytes) -> bool:
        allowed = self.host_allowed(host.decode("latin-1"))
        if allowed and len(self._known) < KNOWN:
            self._known.add(host)
        return allowed

    def host_allowed(self, host: str) -> bool:
        host = host.lower()
        name = _name(host)
        if name is None:
            return False
        return name in LOOPBACK or _literal(name) or _matches(host, name, self._hosts)

    def origin_allowed(self, origin: str | None) -> bool:
        if origin is None:
            return True
        origin = origin.lower()
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        name = _name(host)
        if not separator or scheme not in ("http", "https") or name is None:
            return False
        return name in LOOPBACK or f"{scheme}://{name}:*" in self._origins


def _name(host: str) -> str | None:
    """Return the name or the address of a Host in lower case, None when it is malformed."""
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    literal, name = found.groups()
    return name if literal is None else literal if _literal(literal) else None


def _literal(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(host: str, name: str, allowed: set[str]) -> bool:
    return host in allowed or name in allowed or f"{name}:*" in allowed


__all__ = ["HostCheck"]
