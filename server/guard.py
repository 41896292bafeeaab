"""Host and Origin checks in front of everything this process answers over HTTP.

A page in a browser can reach a loopback port through a name that it rebinds (2026-07-28, basic/transports: servers MUST
validate Origin). A Host that is an address literal cannot have been rebound; a name has to be one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
KNOWN = 64
"""How many hosts that were allowed are remembered; there are as many as a client can think of addresses."""


class Guard:
    """Answers 421 to a wrong Host and 403 to a foreign Origin; everything else goes on to `app`."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The first of each counts.
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        if host not in self._known and not self._host_allowed(host):
            await PlainTextResponse("Invalid Host header", 421)(scope, receive, send)
        elif origin is not None and not self.origin_allowed(origin.decode("latin-1")):
            await PlainTextResponse("Invalid Origin header", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

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
        try:
            parts = urlsplit(origin)
            name = parts.hostname
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or name is None:
            return False
        return name in LOOPBACK or f"{parts.scheme}://{name}:*" in self._origins


def _name(host: str) -> str | None:
    try:
        return (
            urlsplit(f"//{host}").hostname if host and "/" not in host and "@" not in host else None
        )
    except ValueError:
        return None


def _literal(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(host: str, name: str, allowed: set[str]) -> bool:
    return host in allowed or name in allowed or f"{name}:*" in allowed


__all__ = ["Guard"]
