"""A JSON-RPC connection: one transport, the SDK's dispatcher on it, and the task that owns both.

Above: the connection, which knows MCP. Below: a transport. Requests and results pass as unchanged JSON: nothing is parsed
into models, so unknown fields and large numbers survive.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED

from ....sessions.concurrency import unwrap_group
from ....sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable, SessionError
from ....sessions.json_codec import JSON
from ....sessions.one_line import escape_controls
from ..errors import UpstreamMisbehaved, UpstreamRefused, refusal_of
from ..known_secrets import Secrets
from ..negotiation import EraPlan, Peer, negotiate
from .base import EarlierTraffic, Handler, OpenTransport, UpstreamTransport
from .http_errors import BrokenExchange, HttpRefused, NoConnection
from .pipe_requests import CAUSE, QUESTION, EndWatchingStream, PipeRequests
from .trace_context import is_tracing, with_trace_context

logger = logging.getLogger("statehold.upstream")

EXPLAIN_SECONDS: Final = 0.8
"""Seconds that a failed call waits for the reason why its connection ended."""

STDERR_TAIL: Final = 8192
"""Characters of stderr that an operator is shown for one connection."""

LEAVE_SECONDS: Final = 2.0
"""Seconds that closing over the network may take; a child process has its own limits."""

CLOSE_SECONDS: Final = 8.0

_CLOSED: Final = "Connection closed"
_STREAM: Final = "SSE stream"


class HandshakeFailed(ServiceUnavailable):
    """Raised when the connection ended before the handshake."""


class JsonRpcConnection:
    """A JSON-RPC connection to one upstream. It lives from open() until aclose() or until the upstream ends.

    Its own task enters and leaves all cancel scopes. So open() and aclose() may be called from any task and inside any
    scope, and a failing transport cancels only that task.
    """

    def __init__(
        self,
        connect: Callable[[], OpenTransport],
        handler: Handler,
        *,
        service: str,
        secrets: Secrets,
        first_number: int = 1,
    ) -> None:
        """`first_number` is the id of the first request."""
        self._connect = connect
        self._handler = handler
        self._service = service
        self._secrets = secrets
        self._scope = anyio.CancelScope()
        self._end_requested = anyio.Event()
        self._handshake_done = anyio.Event()
        self._loss_reported = anyio.Event()
        self._task_done = anyio.Event()
        self.numbers = itertools.count(first_number)
        """The ids of the next requests."""
        self._transport: UpstreamTransport | None = None
        self.http = False
        self._dispatcher: JSONRPCDispatcher | None = None
        self._pipe_requests: PipeRequests | None = None
        self._read_stream: EndWatchingStream | None = None
        self._tasks: TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._peer: Peer | None = None
        self._failure: Exception | None = None
        self._cause: tuple[str, str] | None = None
        self.earlier_traffic = EarlierTraffic()
        self._streams: dict[anyio.CancelScope, anyio.Event] = {}
        self._stopping = False
        self._has_ended = False
        self._is_lost = False
        self.last_break = ""
        """Why the last request without an answer has none; the connection may go on after that."""
        self.loss_reason = "the connection ended"
        """Why it ended, without the upstream's output, so that it may be shown to callers."""

    @property
    def peer(self) -> Peer:
        assert self._peer is not None, "the connection is not open"
        return self._peer

    @property
    def pid(self) -> int | None:
        """The id of the process at the other end while it is connected; None if that is no child process."""
        return None if self._transport is None or self._has_ended else self._transport.pid

    @property
    def usable(self) -> bool:
        return self._peer is not None and not self._has_ended and not self._stopping

    @property
    def transport(self) -> UpstreamTransport:
        assert self._transport is not None, "the connection is not open"
        return self._transport

    async def interrupted_answer(self, number: int) -> JSON:
        """Return the answer to a request that an earlier process sent. Raises as request() does."""
        assert self._pipe_requests is not None
        try:
            return await self._pipe_requests.expected(number)
        except MCPError as error:
            raise await self._explain(error, 0) from error

    def ask_again(self) -> None:
        """Put the questions that were open when the earlier process ended, once; those that no call asks are withdrawn."""
        if self._pipe_requests is not None:
            for put in self._pipe_requests.take_questions(self._handler.on_request):
                self.spawn(contextvars.Context(), put)

    def last_output(self) -> str:
        """Return the upstream's last output, without secrets, bounded."""
        last_output = self._transport.last_output() if self._transport is not None else ""
        return self._secrets.describe_failure("", last_output).removeprefix("; ")

    def noise(self) -> str:
        """Return the last text on stdout that is not MCP as one line, without secrets, bounded."""
        return self.quote(self._transport.noise() if self._transport is not None else "")

    def quote(self, words: str) -> str:
        """Return words of the upstream as one line, without secrets, bounded."""
        return self._secrets.describe_failure(words)

    def stderr_tail(self) -> str:
        """Return the last lines of the upstream's stderr, without secrets; control characters are escaped."""
        last_output = self._transport.last_output() if self._transport is not None else ""
        lines = self._secrets.redact(last_output).splitlines()
        return "\n".join(map(escape_controls, lines))[-STDERR_TAIL:]

    async def open(self, handshake: EraPlan | Peer, *, seconds: float = math.inf) -> None:
        """Connect and do the handshake of a plan. A failed or cancelled call leaves nothing behind.

        With a peer, an earlier process did the handshake with it, and there is none now. `seconds` is the limit of the
        caller, which ends the call.

        Raises:
            HandshakeFailed: The upstream ended before it answered.
            EraUndecided: See negotiate().
            ServiceUnavailable: Any other failure, with the last output of the upstream if there is some.
        """
        # A separate task instead of a task group: a scope entered here would stay open inside the caller's scopes.
        # The context is empty, so that the opener's token and trace do not live as long as the connection.
        loop = asyncio.get_running_loop()
        self._task = contextvars.Context().run(loop.create_task, self._run(handshake, seconds))
        try:
            await self._handshake_done.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._peer is None:
            await self.aclose()
            raise self._open_error()

    def _open_error(self) -> SessionError:
        failure = self._failure
        if isinstance(failure, NoConnection | UpstreamRefused | HttpRefused) and failure.refusal:
            if failure.refusal.key_error is not None:
                return failure.refusal.key_error
            refusal = failure.refusal.redacted(self._secrets.redact)
            words = refusal.words if isinstance(failure, NoConnection) else failure.words
            words = self._secrets.describe_failure(words)
            return HttpRefused(self._service, refusal, words, opening=True)
        if isinstance(failure, SessionError) and not isinstance(failure, UpstreamRefused):
            return failure
        problem = _describe(failure) if failure is not None else "it was closed meanwhile"
        return ServiceUnavailable(
            f"{self._service} could not be opened: {self._secrets.describe_failure(problem)}."
        )

    async def aclose(self) -> None:
        """Close it within CLOSE_SECONDS, even if the upstream hangs. May be called twice, and during requests."""
        self._stopping = True
        self._end_requested.set()
        if self._task is None:
            return
        if self._peer is None:
            self._scope.cancel()
        else:
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + LEAVE_SECONDS)
        with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
            await self._task_done.wait()
        if scope.cancelled_caught:
            logger.error("%s does not close", self._service)

    async def _run(self, handshake: EraPlan | Peer, seconds: float) -> None:
        try:
            with self._scope:
                async with self._connect() as transport:
                    self._transport = transport
                    self.http = transport.http
                    await self._serve(transport, handshake, seconds)
        except Exception as error:
            self._failure = cast("Exception", unwrap_group(error))
        finally:
            self._has_ended = True
            if self._pipe_requests is not None:
                self._pipe_requests.close()
            self._report_failure()
            self._loss_reported.set()
            self._handshake_done.set()
            self._task_done.set()

    async def _serve(
        self, transport: UpstreamTransport, handshake: EraPlan | Peer, seconds: float
    ) -> None:
        self._pipe_requests = None if transport.http else PipeRequests(transport.write_stream)
        read_stream = EndWatchingStream(
            transport.read_stream, self._pipe_requests, self._record_end
        )
        self._read_stream = read_stream
        dispatcher = JSONRPCDispatcher[TransportContext](read_stream, transport.write_stream)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._dispatcher = dispatcher
            await tasks.start(
                dispatcher.run, self._on_request, _ignore_notification, self._on_notify
            )
            try:
                if isinstance(handshake, EraPlan):
                    await self._negotiate(transport, handshake, seconds)
                else:
                    await self._resume(transport, handshake)
                await self._end_requested.wait()
                if self._stopping:
                    await self._close_streams(transport)
                else:
                    await self._record_loss(transport)
            except SessionError as error:
                self._failure = await self._handshake_error(transport, error)
            self._has_ended = True
            tasks.cancel_scope.cancel()

    async def _negotiate(self, transport: UpstreamTransport, plan: EraPlan, seconds: float) -> None:
        has_session = (lambda: transport.has_session) if transport.http else None
        peer = await negotiate(
            self._send_handshake,
            plan,
            service=self._service,
            seconds=seconds,
            has_session=has_session,
        )
        if not peer.modern:
            headers = peer.headers("", {})
            assert self._dispatcher is not None
            await self._dispatcher.notify("notifications/initialized", None, {"headers": headers})
        self._peer = peer
        self._handshake_done.set()

    async def _resume(self, transport: UpstreamTransport, peer: Peer) -> None:
        """Go on where an earlier process ended: wait for the answers to its calls; ask_again() puts its open questions."""
        if self._pipe_requests is not None and transport.resumption is not None:
            self.earlier_traffic = transport.resumption.earlier_traffic()
            self._pipe_requests.settle(self.earlier_traffic)
        self._peer = peer
        self._handshake_done.set()

    async def _send_handshake(self, method: str, params: JSON, headers: dict[str, str]) -> JSON:
        assert self._dispatcher is not None
        number = next(self.numbers)
        options: CallOptions = {
            "request_id": number,
            "headers": headers,
            "cancel_on_abandon": False,
        }
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            raise await self._explain(error, number) from error

    async def _close_streams(self, transport: UpstreamTransport) -> None:
        """End the open HTTP streams, which would report messages without a reader as errors."""
        for scope, ended in list(self._streams.items()) if transport.http else ():
            scope.cancel()
            await ended.wait()
            # The cancelled transport closes the stream in its next steps.
            for _ in range(3):
                await anyio.lowlevel.checkpoint()

    async def _handshake_error(
        self, transport: UpstreamTransport, error: SessionError
    ) -> SessionError:
        """Return HandshakeFailed with the cause if the connection ended during the handshake, else the error unchanged."""
        if not isinstance(error, ConnectionLost | OutcomeUnknown):
            return error
        cause, output = self._cause or await transport.describe_end()
        description = self._secrets.describe_failure(cause, output)
        return HandshakeFailed(f"{self._service} ended before it was ready: {description}.")

    def _record_end(self) -> None:
        self._has_ended = True
        self._end_requested.set()
        if self._pipe_requests is not None:
            self._pipe_requests.close()

    async def _record_loss(self, transport: UpstreamTransport) -> None:
        cause, output = self._cause or await transport.describe_end()
        if not self._stopping:
            self._report_loss(cause, output)

    def _report_failure(self) -> None:
        """Report the loss of a connection whose task ended because the transport failed."""
        if self._peer is not None and not self._stopping and not self._is_lost:
            self._report_loss(*(self._cause or (_describe(self._failure), "")))

    def _report_loss(self, cause: str, output: str) -> None:
        self.loss_reason = self._secrets.describe_failure(cause)[:300]
        self._has_ended = True
        self._is_lost = True
        self._loss_reported.set()
        self._handler.on_lost(self._secrets.describe_failure(cause, output))

    def spawn(self, context: contextvars.Context, function: Callable[[], Any]) -> bool:
        """Run a task in a context until the connection ends. Return False if it has ended already."""
        if self._tasks is None or self._has_ended:
            return False
        context.run(self._tasks.start_soon, function)
        return True

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        number: int,
        headers: dict[str, str] | None = None,
        operation_id: str | None = None,
    ) -> JSON:
        """Send a request and return its result. Cancelling it cancels it upstream.

        With `operation_id`, a process after this one can still receive the answer, if the upstream outlives this one.

        Raises:
            OutcomeUnknown: The connection ended after the request was sent.
            ConnectionLost: The connection ended before the request was sent.
            UpstreamRefused: The upstream answered with a JSON-RPC error.
            HttpRefused: It answered with an HTTP response that is no answer in MCP.
        """
        if not self.usable:
            await self._wait_for_loss()
            raise ConnectionLost(f"The connection to {self._service} is gone: {self.loss_reason}.")
        assert self._dispatcher is not None
        if operation_id is not None and self.transport.resumption is not None:
            self.transport.resumption.record_call(number, operation_id)
        params = with_trace_context(params)
        try:
            if self._pipe_requests is not None and not is_tracing():
                return await self._pipe_requests.send(method, params, number)
            options: CallOptions = {"request_id": number, "headers": headers or {}}
            token = CAUSE.set(number)
            try:
                return await self._dispatcher.send_raw_request(method, params, options)
            finally:
                CAUSE.reset(token)
        except MCPError as error:
            raise await self._explain(error, number) from error

    async def _explain(self, error: MCPError, number: int) -> SessionError:
        """Return the error of a failed request: the error answer, or the loss of the connection with its reason."""
        transport = self._transport
        failure = None if transport is None else transport.take_failure(number)
        if self.http and error.code == CONNECTION_CLOSED and error.message.startswith(_STREAM):
            if "failed" in error.message:
                return UpstreamMisbehaved(self._service, self._secrets.redact(error.message))
            failure = failure or BrokenExchange("the server ended the response without an answer")
        if isinstance(failure, BrokenExchange):
            return self._broken_exchange_error(failure)
        refusal = refusal_of(self._service, error.error, failure, self._secrets)
        is_closed = error.code == CONNECTION_CLOSED and (
            self._has_ended or error.message == _CLOSED
        )
        if transport is None or not is_closed:
            return refusal
        if self._peer is not None:
            await self._wait_for_loss()
            if not self._has_ended:
                return refusal
        return self._lost_call_error(transport.is_unsent(number))

    async def give_up(self, reason: str) -> None:
        """End the connection as lost. Its MCP session is left as it is: if the upstream still knows it, it may live."""
        if self._transport is not None and self._transport.resumption is not None:
            self._transport.resumption.leave()
        self._cause = self._cause or (reason, "")
        self._record_end()
        await self._wait_for_loss()

    async def _wait_for_loss(self) -> None:
        with anyio.move_on_after(EXPLAIN_SECONDS):
            await self._loss_reported.wait()

    def _broken_exchange_error(self, failure: BrokenExchange) -> SessionError:
        """Return the error of one request; the connection may go on."""
        if failure.error is not None:
            return failure.error
        cause = self.last_break = self._secrets.describe_failure(failure.cause)[:300]
        if self._peer is None and failure.unsent:
            return ServiceUnavailable(f"{self._service} could not be opened: {cause}.")
        if self._peer is None:
            return HandshakeFailed(f"{self._service} ended before it was ready: {cause}.")
        if failure.unsent:
            return ConnectionLost(f"The call did not reach {self._service}: {cause}.")
        return OutcomeUnknown(f"The answer of {self._service} did not arrive: {cause}.")

    def _lost_call_error(self, unsent: bool) -> SessionError:
        if unsent:
            return ConnectionLost(f"The call did not reach {self._service}: {self.loss_reason}.")
        if self._stopping and not self._is_lost:
            return OutcomeUnknown(f"The connection to {self._service} was closed during the call.")
        return OutcomeUnknown(
            f"The connection to {self._service} was lost during the call: {self.loss_reason}."
        )

    async def listen(
        self, method: str, params: JSON, *, number: int, headers: dict[str, str] | None
    ) -> None:
        """Send a subscription request and return when its stream ends. The connection stays open after that.

        Raises:
            MCPError: The request was refused, or its stream broke.
        """
        assert self._dispatcher is not None
        options: CallOptions = {"request_id": number, "headers": headers or {}}
        options["cancel_on_abandon"] = self.http
        scope = anyio.CancelScope()
        ended = self._streams[scope] = anyio.Event()
        try:
            with scope:
                await self._dispatcher.send_raw_request(method, params, options)
        except anyio.get_cancelled_exc_class():
            # Over a pipe, a cancellation message would delay the close of the connection.
            if self._pipe_requests is not None and self.usable:
                await self._pipe_requests.cancel(number)
            raise
        finally:
            del self._streams[scope]
            ended.set()

    async def notify(self, method: str, params: JSON | None) -> None:
        """Send a notification; dropped when the connection is gone."""
        if self._dispatcher is not None and self._peer is not None:
            headers = self._peer.headers(method, params or {})
            await self._dispatcher.notify(method, params, {"headers": headers})

    async def _on_request(
        self,
        context: DispatchContext[TransportContext],
        method: str,
        params: Mapping[str, Any] | None,
    ) -> JSON:
        QUESTION.set(context.request_id)
        return await self._handler.on_request(method, dict(params or {}), CAUSE.get())

    def _on_notify(self, method: str, params: Mapping[str, Any] | None) -> bool:
        number = None if self._read_stream is None else self._read_stream.last_cause
        self._handler.on_notify(method, dict(params or {}), number)
        return True


async def _ignore_notification(
    context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
) -> None:
    """Do nothing: _on_notify() has handled the notification, in the order of arrival."""


def _describe(error: Exception | None) -> str:
    if error is None:
        return "the connection ended"
    text = str(error).strip().rstrip(".") or "no further detail"
    if isinstance(error, SessionError):
        return text
    return f"{type(error).__name__}: {text}"
