"""One connection of a browser to the proxy: a handshake, then a tunnel to the site it names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import anyio
from anyio.abc import SocketStream

from ....sessions.clock import Clock
from .dialer import EgressDialer, SiteConnection
from .network_policy import Target, UpstreamProxy
from .session_access import EgressAccess, EgressRefused, not_allowed, unreachable
from .socks import Malformed, SocksReply, read_request, send_reply
from .tunnel import (
    BROKEN,
    HEAD_BYTES,
    HEAD_END,
    Overfull,
    RequestRewriter,
    Rewrite,
    Tunnel,
    asks_to_upgrade,
    close,
    drain,
    reset,
)

TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection; no HTTP request begins with it."""

CUT_OFF: Final = "the server was started again meanwhile; a request that this cut off may have arrived, and was not repeated"
"""The reason for the end of a connection that waited for this process."""


@dataclass(slots=True)
class ProxyClient:
    """One connection of a browser. When serve() returns or is cancelled, no socket is left open."""

    stream: SocketStream
    access: EgressAccess
    dialer: EgressDialer
    clock: Clock
    handshake_seconds: float
    has_waited: bool = False
    """Whether it waited at the port for this process, after the one before it was killed."""

    async def serve(self) -> None:
        """Serve until the tunnel ends or the access is revoked; then close both sides."""
        scope = anyio.CancelScope()
        try:
            with scope, self.access.connection(scope):
                await self._serve(scope)
        except (*BROKEN, Malformed, TimeoutError):
            pass
        finally:
            await close(self.stream)

    async def _serve(self, scope: anyio.CancelScope) -> None:
        with anyio.fail_after(self.handshake_seconds):
            target, early = await read_request(self.stream)
        site: SiteConnection | None = None
        is_answered = False
        try:
            if self.has_waited:
                raise unreachable(target, CUT_OFF)
            self.access.count(scope, target)
            if self.access.policy.has_schemes:
                # The first byte tells the scheme. A browser sends it after the answer.
                await send_reply(self.stream, SocksReply.SUCCEEDED)
                is_answered = True
                early = early or await self.stream.receive()
                target = replace(target, is_secure=early[0] == TLS_HANDSHAKE)
            site = await self.dialer.dial(target, self.access)
            if not is_answered:
                await send_reply(self.stream, SocksReply.SUCCEEDED)
                is_answered = True
            if site.proxy is not None:
                early = early or await self.stream.receive()
            rewrite: Rewrite | None = None
            if site.proxy is not None:
                site, early, rewrite = await self._ask_proxy(target, site, site.proxy, early)
            tunnel = Tunnel(self.stream, site.stream, self.access, self.clock, rewrite)
            is_complete = await tunnel.run(to_site=early, to_browser=site.rest)
        except Overfull:
            reason = (
                f"the response is larger than the {self.access.policy.response_bytes} bytes allowed"
            )
            self.access.note(not_allowed(target, reason))
            is_complete = False
        except EgressRefused as refusal:
            self.access.note(refusal)
            if not is_answered:
                await send_reply(self.stream, refusal.reply)
                await drain(self.stream)
                return
            is_complete = False
        finally:
            if site is not None:
                await close(site.stream)
        if not is_complete:
            # An incomplete answer must not look complete.
            await reset(self.stream)

    async def _ask_proxy(
        self, target: Target, site: SiteConnection, proxy: UpstreamProxy, early: bytes
    ) -> tuple[SiteConnection, bytes, Rewrite | None]:
        """Ask a proxy for the site: by a tunnel for TLS and WebSockets, else in each request.

        Return the connection, the first bytes for the site, and the change of the requests.
        """
        is_plain = early[0] != TLS_HANDSHAKE
        while is_plain and HEAD_END not in early and len(early) <= HEAD_BYTES:
            early += await self.stream.receive()
        if is_plain and not asks_to_upgrade(early.partition(HEAD_END)[0]):
            return site, early, RequestRewriter(proxy, target).feed
        return await self.dialer.open_tunnel(target, site), early, None
