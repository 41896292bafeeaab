"""One connection of a browser to the proxy: a handshake, then a tunnel to the site it names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import anyio
from anyio.abc import SocketStream

from ....sessions.clock import Clock
from .access import EgressAccess
from .dialer import Dialer, SiteConnection
from .policy import Target
from .refusal import Refused, not_allowed, unreachable
from .socks import Malformed, Reply, read_request, send_reply
from .streams import BROKEN, close, drain, reset
from .tunnel import Overfull, Tunnel

TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection; no HTTP request begins with it."""

CUT_OFF: Final = "the server was started again meanwhile; a request that this cut off may have arrived, and was not repeated"
"""The reason for the end of a connection that waited for this process."""


@dataclass(slots=True)
class Client:
    """One connection of a browser. When serve() returns or is cancelled, no socket is left open."""

    stream: SocketStream
    access: EgressAccess
    dialer: Dialer
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
        try:
            if self.has_waited:
                raise unreachable(target, CUT_OFF)
            self.access.count(scope)
            site = await self.dialer.dial(target, self.access)
        except Refused as refusal:
            self.access.note(refusal)
            await send_reply(self.stream, refusal.reply)
            await drain(self.stream)
            return
        try:
            await send_reply(self.stream, Reply.SUCCEEDED)
            if self.access.policy.has_schemes:
                early = early or await self.stream.receive()
                self._require_scheme(target, site, early)
            tunnel = Tunnel(self.stream, site.stream, self.access, self.clock)
            is_complete = await tunnel.run(to_site=early, to_browser=site.rest)
        except Overfull:
            reason = (
                f"the response is larger than the {self.access.policy.response_bytes} bytes allowed"
            )
            self.access.note(not_allowed(target, reason))
            is_complete = False
        except Refused as refusal:
            self.access.note(refusal)
            is_complete = False
        finally:
            await close(site.stream)
        if not is_complete:
            # An incomplete answer must not look complete.
            await reset(self.stream)

    def _require_scheme(self, target: Target, site: SiteConnection, early: bytes) -> None:
        """Check that the policy allows the scheme of a connection, before any byte reaches the site.

        Raises:
            Refused: It does not.
        """
        is_secure = early[0] == TLS_HANDSHAKE
        self.dialer.require_allowed(replace(target, is_secure=is_secure), site, self.access)


__all__ = ["Client"]
