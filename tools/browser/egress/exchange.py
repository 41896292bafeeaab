"""One request and its answer, streamed between the browser's connection and the site's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import anyio
import h11
from anyio.abc import SocketStream

from .dialer import SiteConnection
from .grant import EgressAccess
from .heads import RESPONSE_HEAD_BYTES, Headers, Incoming, end_to_end
from .lines import BROKEN
from .pieces import SendBuffer
from .refusal import Refused, malformed, unreachable
from .tunnel import Overfull

SLICE: Final = 64
"""The number of parts of an answer after which other tasks get their turn."""
INTERIM: Final = 20
"""The most interim (1xx) answers before the final one."""
_OVERHEAD: Final = 8
"""An answer may take so many times its own size in transfer; in chunks of one byte each it takes six times its size."""


class Stale(Exception):
    """Raised when a kept connection ended before it could be used again."""


class Gone(Exception):
    """Raised when the browser no longer waits for the answer."""


def _client() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=RESPONSE_HEAD_BYTES)


@dataclass(slots=True)
class SiteSide:
    """The connection to a site. It is kept for the next request of the same browser connection to the same target."""

    line: SiteConnection
    http: h11.Connection = field(default_factory=_client)
    used: bool = False

    def rewind(self) -> bool:
        """Prepare for another request. Return whether that is possible."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        self.used = True
        # Bytes beyond the answer belong to no request; a connection with such bytes is not used again.
        return not self.http.trailing_data[0]


class Exchange:
    """One request and its answer. run() is called once. Bodies are streamed: each piece is sent before the next is read."""

    def __init__(
        self,
        incoming: Incoming,
        near: h11.Connection,
        stream: SocketStream,
        far: SiteSide,
        grant: EgressAccess,
    ) -> None:
        self._incoming = incoming
        self._near = near
        self._stream = stream
        self._far = far
        self._grant = grant
        self._refused: Refused | None = None
        self._gone = False
        self._arrived = 0

    async def run(self) -> None:
        """Return when the answer has been passed on.

        Raises:
            Refused: The site gave no answer, or one that cannot be passed on.
            Overfull: The answer is too large; some of it may have been passed on.
            Stale: The request has to be sent on a new connection.
            Gone: The browser has disconnected.
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_request, tasks.cancel_scope)
            try:
                await self._pass_answer_on()
            except (Refused, Overfull, Stale, Gone) as error:
                failure = error
            tasks.cancel_scope.cancel()
        if self._gone:
            raise Gone
        failure = self._refused or failure
        if failure is not None:
            raise failure

    # Towards the site.

    async def _send_request(self, scope: anyio.CancelScope) -> None:
        try:
            await self._send_all_of_it()
            await self._watch()
        except h11.RemoteProtocolError:
            self._refused = malformed("the body of the request is not in the form it announces")
            scope.cancel()
        except _BrowserLeft:
            self._gone = True
            scope.cancel()
        except BROKEN:
            pass  # the site accepts no more of the request; it may still have sent an answer

    async def _send_all_of_it(self) -> None:
        out = SendBuffer(self._far.http)
        out.add(self._request())
        while self._incoming.has_body:
            event = self._near.next_event()
            if event is h11.NEED_DATA:
                await self._write(out.take())
                await self._read_browser()
            elif isinstance(event, h11.Data):
                out.add(event)
            else:
                break
        out.add(h11.EndOfMessage())
        await self._write(out.take())

    def _request(self) -> h11.Request:
        incoming, proxy = self._incoming, self._far.line.proxy
        headers: Headers = list(incoming.headers)
        if incoming.chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        path = incoming.path
        if proxy is not None:
            headers += proxy.headers()
            path = b"http://" + incoming.target.authority.encode() + path
        return h11.Request(method=incoming.method, target=path, headers=headers)

    async def _write(self, data: bytes) -> None:
        if data:
            await self._grant.bandwidth.take(len(data))
            self._grant.sent += len(data)
            await self._far.line.stream.send(data)

    async def _read_browser(self) -> None:
        if self._near.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self._stream.send(self._near.send(go_on) or b"")
        try:
            data = await self._stream.receive(self._grant.bandwidth.piece)
        except BROKEN:
            raise _BrowserLeft from None
        self._near.receive_data(data)

    async def _watch(self) -> None:
        """Wait for the browser to disconnect. Bytes that arrive instead are kept for the next request."""
        await self._read_browser()

    # Towards the browser.

    async def _pass_answer_on(self) -> None:
        out = SendBuffer(self._near)
        passed = interim = parts = 0
        while True:
            event = self._next()
            parts += 1
            if event is h11.NEED_DATA:
                await self._pass(out.take())
                await self._read_site()
            elif isinstance(event, h11.Response):
                out.add(self._response(event))
            elif isinstance(event, h11.Data):
                passed += len(event.data)
                if passed > (self._grant.policy.response_bytes or passed):
                    raise Overfull
                out.add(event)
            elif isinstance(event, h11.EndOfMessage):
                out.add(h11.EndOfMessage())
                await self._pass(out.take())
                return
            elif isinstance(event, h11.InformationalResponse):
                interim += 1
                if interim > INTERIM:
                    raise self._unreachable(f"sent more than {INTERIM} interim answers")
            else:
                raise self._unreachable("ended the connection without an answer")
            if parts % SLICE == 0:
                await self._grant.let_others()

    def _next(self) -> object:
        try:
            return self._far.http.next_event()
        except h11.RemoteProtocolError:
            raise self._unreachable(
                "answers with what is no HTTP, or ended amid its answer"
            ) from None

    def _response(self, event: h11.Response) -> h11.Response:
        items = event.headers.raw_items()
        if event.status_code == 407:
            # A browser would take the 407 for one of our proxy and ask for a login.
            raise self._unreachable("asks for the credentials of a proxy")
        lengths = [value for name, value in event.headers if name == b"content-length"]
        most = self._grant.policy.response_bytes
        if most and self._incoming.method != b"HEAD" and lengths and int(lengths[0]) > most:
            raise Overfull
        headers = end_to_end(items)
        if any(name == b"transfer-encoding" for name, _ in event.headers):
            headers = [(n, v) for n, v in headers if n.lower() != b"content-length"]
        return h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)

    async def _pass(self, data: bytes) -> None:
        if not data:
            return
        try:
            await self._stream.send(data)
        except BROKEN:
            raise Gone from None

    async def _read_site(self) -> None:
        http = self._far.http
        try:
            data = await self._far.line.stream.receive(self._grant.bandwidth.piece)
        except BROKEN as error:
            if (
                self._far.used
                and http.their_state is h11.SEND_RESPONSE
                and not http.trailing_data[0]
            ):
                raise Stale from None
            if not isinstance(error, anyio.EndOfStream):
                raise self._unreachable("broke the connection") from None
            data = b""
        await self._grant.bandwidth.take(len(data))
        self._grant.received += len(data)
        self._arrived += len(data)
        most = self._grant.policy.response_bytes
        if most is not None and self._arrived > RESPONSE_HEAD_BYTES + _OVERHEAD * most:
            raise Overfull
        http.receive_data(data)

    def _unreachable(self, what: str) -> Refused:
        return unreachable(self._incoming.target, f"{self._incoming.target} {what}")


class _BrowserLeft(Exception):
    pass


__all__ = ["Exchange", "SiteSide", "Gone", "Stale"]
