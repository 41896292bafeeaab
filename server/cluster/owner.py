"""The owner's end: the requests that other nodes pass on to this one, because it owns their sessions."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, MutableMapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import anyio
from starlette.authentication import AuthCredentials
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...access.claims import VerifiedCaller
from ...sessions.cluster.placement import place_here
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL, Principal
from ...sessions.registry import Registry
from ...tools.processes.framing import LINE_LIMIT
from ..asgi import cancel_when_left, has_disconnected, replay_messages, wait_disconnected
from .assertion import HEADER, Assertion, AssertionRefused, Assertions
from .node_connection import ConnectionEnded
from .node_messages import (
    ANSWERS,
    FRAMES,
    HELLO,
    LINES,
    NOT_OWNER,
    NOTICES,
    OPERATE,
    PICTURES,
    PROOF_HEADER,
    REFUSED,
    REQUESTS,
    ForwardedRequest,
    LaterVersion,
    encode,
    parse,
    raise_error,
)

KEEP_SECONDS: Final = 600
"""Seconds that a connection without a request stays open. The other end closes it earlier."""

RunOperator = Callable[[JSON], Awaitable[JSON]]
"""Returns the answer to an operator request with some members."""
WatchPage = Callable[[Principal, str, JSON], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Yields the pictures of the page of a principal's session; the members say how many. Raises SessionError."""

logger = logging.getLogger("statehold.server")


class NotOwner(Exception):
    """Raised when this node does not serve a request of another node, and nothing ran."""


class OwnerServer(Protocol):
    """The MCP server of this node, as requests of other nodes reach it."""

    async def answer(
        self, request: ForwardedRequest, assertion: Assertion, answer_lines: AnswerLines
    ) -> JSON:
        """Return the last message about a request.

        Raises:
            NotOwner: nothing ran.
        """
        ...

    def return_notice(self, number: int) -> None:
        """Make the notice that an answer carries due again, because the answer was not delivered."""
        ...


class ClientApplication(Protocol):
    """The HTTP application of this node, as the requests of clients of other nodes reach it."""

    @property
    def is_running(self) -> bool:
        """Whether it takes requests."""
        ...

    @property
    def needs_user(self) -> bool:
        """Whether its callers have tokens."""
        ...

    @property
    def behind_tokens(self) -> ASGIApp:
        """The part of it that is behind the check of tokens."""
        ...


class OtherEnd:
    """The other end of a connection: a process of this user, as over a local socket. PeerPort has another one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        """The connection, once it is made."""
        self.request_scope: anyio.CancelScope | None = None
        """The cancel scope of the MCP request that runs, which ends with the connection."""

    def accepts(self, size: int) -> bool:
        """Whether it may send so many more bytes; else the connection is closed."""
        return True

    def admit(self) -> None:
        """Note that it is a node."""

    def refuse(self, reason: str) -> None:
        """Close the connection without an answer."""
        self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def leave(self) -> None:
        """Note that the connection is lost, or was never made. A second call has no effect."""
        if self.request_scope is not None:
            self.request_scope.cancel()


class Owner:
    """Answers the requests of other nodes as an ASGI application. It lives as long as the gateway.

    `server` answers MCP requests, and `clients` the HTTP requests of clients, in a process that has such clients. A request
    whose connection ends is cancelled; a client's HTTP request is told so instead, and goes on. While the gateway is not
    open, no request begins.
    """

    def __init__(
        self, registry: Registry, server: OwnerServer, clients: ClientApplication | None = None
    ) -> None:
        self._registry = registry
        self._server = server
        self._clients = clients
        self._run_operator: RunOperator | None = None
        self._watch_page: WatchPage | None = None
        self._questions: MutableMapping[str, _Question] = {}
        self._running = 0
        self._idle = anyio.Event()

    def application(self, assertions: Assertions) -> ASGIApp:
        """Return the application for connections whose requests have these assertions."""
        return _Application(self, assertions)

    @contextmanager
    def serve_operators(self, run: RunOperator, watch: WatchPage) -> Generator[None]:
        """Answer operator requests, and send pictures of pages, while the block runs."""
        self._run_operator, self._watch_page = run, watch
        try:
            yield
        finally:
            self._run_operator = self._watch_page = None

    async def wait_idle(self, within: float) -> None:
        """Wait until every request that is no stream is answered, or `within` seconds have passed."""
        with anyio.move_on_after(within, shield=True):
            while self._running:
                await self._idle.wait()

    @contextmanager
    def _count(self) -> Generator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
                self._idle = anyio.Event()

    def refusal(self, scope: Scope, assertion: Assertion) -> int | None:
        """Return the status with which to refuse a request before it begins, None if it may begin."""
        path: str = scope["path"]
        if path == REQUESTS:
            if not self._owns(assertion):
                return NOT_OWNER
            # Otherwise a name would stand for another session here.
            return REFUSED if assertion.namespace != self._registry.core.policy.namespace else None
        if path.startswith((ANSWERS, NOTICES)):
            return None
        if path == OPERATE:
            is_owner = not assertion.session_id or self._owns(assertion)
            return None if is_owner and self._run_operator is not None else NOT_OWNER
        if path == FRAMES:
            return None if self._owns(assertion) and self._watch_page is not None else NOT_OWNER
        # Principals of a process with tokens are unknown to one without, and the other way round.
        clients = self._clients
        if clients is None or not clients.is_running:
            return NOT_OWNER
        return None if clients.needs_user or assertion.principal == LOCAL else NOT_OWNER

    def _owns(self, assertion: Assertion) -> bool:
        if assertion.adopt:
            # This node may remember the owner that has just given the session up.
            self._registry.forget_owner(assertion.session_id)
            return self._registry.is_open and not self._registry.draining
        return self._registry.owns(assertion.session_id, assertion.epoch)

    async def run(
        self,
        scope: Scope,
        assertion: Assertion,
        other_end: OtherEnd,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request that may begin.

        Raises:
            ConnectionEnded: the request is malformed.
        """
        path: str = scope["path"]
        if path == REQUESTS:
            with self._count():
                try:
                    request = ForwardedRequest.parse(body)
                except LaterVersion as error:
                    logger.warning(
                        "a node of a later version sent a request with %s, which this version does not know: "
                        "run the later version on every node",
                        error,
                    )
                    await _send_status(send, REFUSED)
                    return
                await self._answer(request, assertion, other_end, receive, send)
        elif path == OPERATE and self._run_operator is not None:
            with self._count():
                members = {**parse(body), "owner": assertion.principal.key}
                with place_here():
                    answer = await self._run_operator(members)
                await AnswerLines(send, self._questions).end(answer)
        elif path == FRAMES and self._watch_page is not None:
            await self._send_pictures(self._watch_page, assertion, parse(body), receive, send)
        elif path.startswith(ANSWERS):
            question = self._questions.get(path.removeprefix(ANSWERS))
            if question is not None:
                question.answer(parse(body))
            await _send_status(send, 204)
        elif path.startswith(NOTICES):
            self._return_notice(path.removeprefix(NOTICES))
            await _send_status(send, 204)
        elif self._clients is not None:
            app = self._clients.behind_tokens
            # The other node has checked the scopes of the operation; here they allow nothing more.
            user = VerifiedCaller(assertion.principal, ()) if self._clients.needs_user else None
            # The end of this node ends streams by itself.
            with nullcontext() if scope["method"] == "GET" else self._count():
                whole: Message = {"type": "http.request", "body": body, "more_body": False}
                receive = replay_messages([whole], receive)
                await app(_client_scope(scope, user), receive, send)

    async def _send_pictures(
        self, watch: WatchPage, assertion: Assertion, members: JSON, receive: Receive, send: Send
    ) -> None:
        """Send the pictures of a page until it ends, or the other node leaves."""
        try:
            async with watch(assertion.principal, assertion.session_id, members) as messages:
                await send(_head(200, PICTURES))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
                    async for message in messages:
                        await send(
                            {"type": "http.response.body", "body": message, "more_body": True}
                        )
                    tasks.cancel_scope.cancel()
        except SessionError as error:
            refusal = {"code": error.code, "message": error.message, "recovery": error.recovery}
            await AnswerLines(send, self._questions).end({"error": refusal})
            return
        await send({"type": "http.response.body", "body": b""})

    async def _answer(
        self,
        request: ForwardedRequest,
        assertion: Assertion,
        other_end: OtherEnd,
        receive: Receive,
        send: Send,
    ) -> None:
        answer = AnswerLines(send, self._questions)
        message: JSON | None = None
        with anyio.CancelScope() as request_scope:
            other_end.request_scope = request_scope
            try:
                message = await self._server.answer(request, assertion, answer)
            except NotOwner:
                await _send_status(send, NOT_OWNER)
                return
            finally:
                other_end.request_scope = None
        if message is not None:
            if "notice" in message and await has_disconnected(receive):
                self._server.return_notice(message["notice"])
            await answer.end(message)

    def _return_notice(self, number: str) -> None:
        if number.isdecimal():
            self._server.return_notice(int(number))


class _Application:
    """The owner for the connections of one listener."""

    def __init__(self, owner: Owner, assertions: Assertions) -> None:
        self._owner = owner
        self._assertions = assertions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        other_end: OtherEnd = scope["state"]["other_end"]
        try:
            assertion, fields = self._assertions.verify(scope)
            other_end.admit()
            if scope["path"] == HELLO:
                proof = self._assertions.prove(fields).encode()
                await _send_status(send, 204, (PROOF_HEADER, proof))
                return
            status = self._owner.refusal(scope, assertion)
            if status is not None:
                await _send_status(send, status)
                return
            # With the first bytes that are received, `100 Continue` is sent: the request has begun.
            body = await _read(receive)
            self._assertions.check_body(fields, body)
            await self._owner.run(scope, assertion, other_end, body, receive, send)
        except AssertionRefused as error:
            other_end.refuse(f"the assertion of the last one {error}")
            await wait_disconnected(receive)
        except ConnectionEnded:
            other_end.refuse("the last one sent a malformed request")
            await wait_disconnected(receive)
        except Exception:
            logger.exception("a request of another node failed")
            other_end.refuse("a request failed")
            await wait_disconnected(receive)


class _Question:
    """A question to the client that waits for its answer."""

    def __init__(self) -> None:
        self._answered = anyio.Event()
        self._answer: JSON = {}

    def answer(self, message: JSON) -> None:
        self._answer = message
        self._answered.set()

    async def wait(self) -> JSON:
        await self._answered.wait()
        if "error" in self._answer:
            raise_error(self._answer["error"])
        return self._answer["result"]


class AnswerLines:
    """The answer to an MCP request, one line for each message to its client; the last one is its result."""

    def __init__(self, send: Send, questions: MutableMapping[str, _Question]) -> None:
        self._send = send
        self._questions = questions
        self._lock = anyio.Lock()
        self._is_begun = False
        self._is_ended = False

    async def notify(self, method: str, params: JSON | None) -> None:
        await self._write({"notify": method, "params": params})

    async def ask(self, method: str, params: JSON | None) -> JSON:
        # Only the other node knows the key, so that no caller can answer for another one.
        key = secrets.token_urlsafe(16)
        question = self._questions[key] = _Question()
        try:
            await self._write({"ask": key, "method": method, "params": params})
            return await question.wait()
        finally:
            del self._questions[key]

    async def _write(self, message: JSON) -> None:
        line = encode(message)
        async with self._lock:
            if self._is_ended:
                return
            if not self._is_begun:
                self._is_begun = True
                await self._send(_head(200, LINES))
            await self._send({"type": "http.response.body", "body": line, "more_body": True})

    async def end(self, message: JSON) -> None:
        """Write the last message; later ones are dropped."""
        line = encode(message)
        self._is_ended = True
        if not self._is_begun:
            self._is_begun = True
            await self._send(_head(200, (b"content-length", b"%d" % len(line)), LINES))
            await self._send({"type": "http.response.body", "body": line})
            return
        async with self._lock:
            await self._send({"type": "http.response.body", "body": line})


def _head(status: int, *headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _send_status(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    more = headers if status == 204 else (*headers, (b"content-length", b"0"))
    await send(_head(status, *more))
    await send({"type": "http.response.body", "body": b""})


async def _read(receive: Receive) -> bytes:
    """Return the body of a request.

    Raises:
        ConnectionEnded: it is not whole, or too long.
    """
    parts: list[bytes] = []
    size, is_last = 0, False
    while not is_last:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if message["type"] != "http.request" or size > LINE_LIMIT:
            raise ConnectionEnded
        is_last = not message.get("more_body", False)
    return b"".join(parts)


def _client_scope(scope: Scope, user: VerifiedCaller | None) -> Scope:
    """Return the scope of a client's request, as its own process would see it."""
    headers = [item for item in scope["headers"] if item[0] not in (HEADER, b"host", b"expect")]
    client_scope: dict[str, Any] = {**scope, "headers": headers, "client": None, "server": None}
    del client_scope["state"]
    if user is not None:
        client_scope.update(user=user, auth=AuthCredentials([]))
    return client_scope
