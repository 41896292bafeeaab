"""One connection of a browser to the proxy: its requests, one after the other, until a tunnel takes it over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

import anyio
import h11
from anyio.abc import SocketStream

from ....sessions.clock import Clock
from .dialer import Dialer
from .exchange import Exchange, Gone, SiteSide, Stale
from .grant import EgressAccess
from .heads import HEAD_BYTES, Incoming, next_head, understood
from .lines import BROKEN, close, drain, reset
from .refusal import Refused, malformed, not_allowed
from .tunnel import Overfull, Tunnel

_ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"
_BODY_HEADERS = (b"content-length", b"transfer-encoding")
_PAGE_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("Cache-Control", "no-store"),
)


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """The limits, in seconds, for receiving a request from a browser."""

    head: float = 30.0
    idle: float = 60.0
    """Between two requests."""


class Client:
    """One connection of a browser. When serve() returns or is cancelled, no socket is left open."""

    def __init__(
        self,
        stream: SocketStream,
        grant: EgressAccess,
        *,
        dialer: Dialer,
        clock: Clock,
        patience: ClientTimeouts,
    ) -> None:
        self._stream = stream
        self._grant = grant
        self._dialer = dialer
        self._clock = clock
        self._patience = patience
        self._scope = anyio.CancelScope()
        self._near = h11.Connection(h11.SERVER)
        self._unread = bytearray()
        self._far: SiteSide | None = None

    async def serve(self) -> None:
        """Serve until the browser disconnects, a tunnel ends or the access is revoked; then close both sides."""
        try:
            with self._scope, self._grant.connection(self._scope):
                while await self._serve_one():
                    pass
        except BROKEN:
            pass
        finally:
            await self._close_far()
            await close(self._stream)

    async def _close_far(self) -> None:
        if self._far is not None:
            far, self._far = self._far, None
            await close(far.line.stream)

    async def _serve_one(self) -> bool:
        """Serve a request. Return whether another may follow."""
        self._near = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        head = False
        try:
            if not await self._read_head():
                return False
            request = self._parsed()
            head = request.method == b"HEAD"
            self._grant.count(self._scope)
            incoming = understood(request)
            if not incoming.has_body:
                self._skip_body()
            if request.method == b"CONNECT":
                await self._tunnel(incoming)
                return False
            await self._forward(incoming)
        except Refused as refused:
            self._grant.note(refused)
            return await self._answer(refused, without_body=head)
        except Gone:
            return False
        return self._may_go_on()

    async def _read_head(self) -> bool:
        idle, head = self._patience.idle, self._patience.head
        if not await next_head(self._stream, self._unread, idle_seconds=idle, seconds=head):
            return False
        self._near.receive_data(bytes(self._unread))
        self._unread.clear()
        return True

    def _parsed(self) -> h11.Request:
        try:
            event = self._near.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused(HTTPStatus(error.error_status_hint), "the request is no HTTP") from None
        if not isinstance(event, h11.Request):
            raise malformed("the request is no HTTP")
        if not any(name in _BODY_HEADERS for name, _ in event.headers):
            self._near.next_event()
        return event

    # A tunnel.

    async def _tunnel(self, incoming: Incoming) -> None:
        grant = self._grant
        await self._close_far()
        line = await self._dialer.dial(incoming.target, grant)
        self._far = SiteSide(line)
        await self._stream.send(_ESTABLISHED + line.rest)
        early, _ = self._near.trailing_data
        if early:
            await grant.bandwidth.take(len(early))
            grant.sent += len(early)
            await line.stream.send(early)
        try:
            whole = await Tunnel(self._stream, line.stream, grant, self._clock).run()
        except Overfull:
            grant.note(not_allowed(incoming.target, _too_large(grant)))
            whole = False
        if not whole:
            await reset(self._stream)

    # A plain HTTP request.

    async def _forward(self, incoming: Incoming) -> None:
        if self._far is not None and not (
            incoming.repeatable and self._far.line.target == incoming.target
        ):
            await self._close_far()
        try:
            await self._exchange(incoming)
        except Stale:
            await self._close_far()
            await self._exchange(incoming)

    async def _exchange(self, incoming: Incoming) -> None:
        grant = self._grant
        if self._far is None:
            self._far = SiteSide(await self._dialer.dial(incoming.target, grant))
        exchange = Exchange(incoming, self._near, self._stream, self._far, grant)
        try:
            await exchange.run()
        except Overfull:
            raise not_allowed(incoming.target, _too_large(grant)) from None
        finally:
            if not self._far.rewind():
                await self._close_far()

    # Answers of the proxy itself, and the end of a request.

    async def _answer(self, refused: Refused, *, without_body: bool) -> bool:
        if self._near.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An incomplete answer must not look complete.
            await reset(self._stream)
            return False
        self._skip_body()
        page = refused.page()
        headers = [*_PAGE_HEADERS, ("Content-Length", str(len(page)))]
        if self._near.their_state in (h11.IDLE, h11.SEND_BODY, h11.ERROR):
            headers.append(("Connection", "close"))
        status, phrase = refused.status.value, refused.status.phrase
        response = h11.Response(status_code=status, headers=headers, reason=phrase.encode())
        answer = self._near.send(response) or b""
        if not without_body:
            answer += self._near.send(h11.Data(page)) or b""
        await self._stream.send(answer + (self._near.send(h11.EndOfMessage()) or b""))
        return self._may_go_on() or await self._end()

    def _skip_body(self) -> None:
        """Discard the part of an unread request body that has arrived; often that is all of it."""
        with suppress(h11.RemoteProtocolError):
            while self._near.their_state is h11.SEND_BODY:
                if self._near.next_event() is h11.NEED_DATA:
                    return

    def _may_go_on(self) -> bool:
        if self._near.our_state is h11.DONE and self._near.their_state is h11.DONE:
            self._unread += self._near.trailing_data[0]
            return True
        return False

    async def _end(self) -> bool:
        await drain(self._stream)
        return False


def _too_large(grant: EgressAccess) -> str:
    return f"the response is larger than the {grant.policy.response_bytes} bytes allowed"


__all__ = ["Client", "ClientTimeouts"]
