"""The messages of one client as lines, as the SDK's server takes them: over stdin and stdout, or over a socket."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..tools.processes.framing import LINE_LIMIT, ClosingStream, LineReader, encode
from ..tools.processes.piped_process import LONG_LINE, widen_pipe
from .line_calls import LineCalls
from .protocol.error_translation import invalid_request, refusal
from .protocol.server import StateholdServer
from .sdk.caller import COMMAND_SCOPE, LINE_CALLS

ANSWER_SECONDS = 2.0
"""Seconds that writing the last answers may take when a connection ends."""
UNANSWERED: Final = 100
"""Requests without an answer from which on the next line waits until the client has read all that was written."""


class LineWriter(asyncio.BaseProtocol):
    """Writes lines to a pipe or socket, in the order of the calls. When the client reads no more, lines are dropped.

    If the stream of answers ended instead, each sender would get an error; the end of stdin ends the process.
    """

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.unread = 0
        """The lines that wait until the client has read the earlier ones."""
        self._is_wide = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        # So that drain() waits until everything is written, and no message is lost when the process ends.
        self.transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._can_write.set()

    async def write(self, data: bytes) -> None:
        """Write a line and return when everything is written. A cancelled write is completed later."""
        if self.transport is not None and not self.transport.is_closing():
            if len(data) > LONG_LINE and not self._is_wide:
                self._is_wide = True
                widen_pipe(self.transport)
            self.transport.write(data)
            self.unread += 1
            try:
                await self._can_write.wait()
            finally:
                self.unread -= 1

    async def drain(self) -> None:
        await self._can_write.wait()


class FileWriter(LineWriter):
    """Writes lines to a file or a terminal."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    async def write(self, data: bytes) -> None:
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(self._fd, unwritten) :]


class ClientStreams:
    """The streams of one client. A transport passes its lines to `read_stream`.

    The SDK cancels the running calls when its read stream ends. So the stream ends only when end() is called, which gives
    running calls time to finish.
    """

    def __init__(self, writer: LineWriter) -> None:
        self.writer = writer
        self.read_stream = ClientLines(self)
        self.write_stream = ClientAnswers(self)
        self.calls: LineCalls | None = None
        self.client_closed = anyio.Event()
        """Set when the client has closed its side."""
        self.tools_listed = anyio.Event()
        """Set when the first request for the tool list was answered."""
        self._list_ids: set[Any] = set()
        self._unanswered_ids: set[Any] = set()
        self._listen_ids: set[Any] = set()
        self._answer_sent = anyio.Event()
        self.end_requested = anyio.Event()

    async def serve(self, server: StateholdServer, state: dict[str, Any]) -> None:
        """Serve MCP to the client until end() is called. `state` is the lifespan state of its connection."""
        async with anyio.create_task_group() as tasks:
            calls = LineCalls(server, state, tasks, self.writer.write, self.record_answered)
            # The arguments of a command have to be parsed first.
            if COMMAND_SCOPE not in state:
                self.calls = state[LINE_CALLS] = calls
            await serve_dual_era_loop(
                server,
                self.read_stream,
                self.write_stream,
                lifespan_state=state,
                init_options=server.create_initialization_options(),
            )
            await calls.end()
            with anyio.move_on_after(ANSWER_SECONDS):
                await self.writer.drain()
            tasks.cancel_scope.cancel()

    async def wait_answered(self, within: float) -> None:
        """Wait until all received requests are answered, or `within` seconds have passed."""
        with anyio.move_on_after(within):
            while self._unanswered_ids:
                await self._answer_sent.wait()

    def abandon_subscriptions(self) -> None:
        """Wait no more for the answers of `subscriptions/listen`: the end of the stream ends them without one."""
        self._unanswered_ids -= self._listen_ids
        self._wake_waiters()

    async def end(self) -> None:
        """End the read stream, after the last answers are written."""
        await self.wait_answered(ANSWER_SECONDS)
        self.end_requested.set()
        self.read_stream.end()

    async def wait_room(self) -> None:
        """Wait until the client has read enough answers for another request."""
        # Several requests may have one id.
        if max(len(self._unanswered_ids), self.writer.unread) >= UNANSWERED:
            await self.writer.drain()

    def take(self, line: bytes) -> bool:
        """Begin the call of a line. Return False if the SDK has to answer the line."""
        request_id = None if self.calls is None else self.calls.take(line)
        if request_id is None:
            return False
        self._unanswered_ids.add(request_id)
        return True

    def record_received(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._unanswered_ids.add(message.id)
            if message.method == "tools/list" and not self.tools_listed.is_set():
                self._list_ids.add(message.id)
            elif message.method == "subscriptions/listen":
                self._listen_ids.add(message.id)
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            request_id = (message.params or {}).get("requestId")
            if self.calls is not None:
                self.calls.cancel(request_id)
            # A cancelled request is not answered.
            self.record_answered(request_id)

    def record_answered(self, request: object) -> None:
        if not isinstance(request, str | int):
            return
        self._unanswered_ids.discard(request)
        self._listen_ids.discard(request)
        if request in self._list_ids:
            self._list_ids.clear()
            self.tools_listed.set()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._answer_sent.set()
        self._answer_sent = anyio.Event()


class ClientLines(LineReader):
    """The lines of one client as the SDK's read stream, for a transport that reads, or for a socket. It ends with end().

    A plain call is begun inside data_received(), but only while the SDK has handled all earlier lines, so that requests
    begin in the order of their lines.
    """

    def __init__(self, streams: ClientStreams) -> None:
        super().__init__(LINE_LIMIT)
        self._streams = streams
        self._hold = anyio.CancelScope()
        self._has_received_all = False
        self._is_closed = False

    def _add_line(self, line: bytes) -> None:
        if not (self._is_parked and self._streams.take(line)):
            self._queue_line(line)

    def _report_overlong_line(self) -> None:
        self._streams.client_closed.set()

    def eof_received(self) -> bool:
        if self._partial:
            self._queue_line(b"".join(self._partial))
            self._partial = []
        self._has_received_all = True
        if not self._queue:
            self._streams.client_closed.set()
        self._end()
        return True  # so that a socket stays open for the answers

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is self._streams.writer.transport:  # a socket
            self._streams.writer.connection_lost(exc)
        super().connection_lost(exc)
        self.eof_received()

    def pause_writing(self) -> None:
        self._streams.writer.pause_writing()

    def resume_writing(self) -> None:
        self._streams.writer.resume_writing()

    async def aclose(self) -> None:
        # The server may end before its client: then read to the end, and drop what comes.
        self.discard()
        if self._has_received_all:
            self._streams.client_closed.set()

    def end(self) -> None:
        """End the stream, whether the client has closed its side or not."""
        self._is_closed = True
        self._hold.cancel()
        self.discard()
        self._end()

    async def receive(self) -> SessionMessage | Exception:
        # The SDK has only taken the last message out of a stream; let it begin the request.
        await anyio.lowlevel.checkpoint()
        if not self._is_closed:
            with anyio.CancelScope() as self._hold:
                await self._streams.wait_room()
        try:
            item = await self._parse(await self._next_line())
        except anyio.EndOfStream:
            if not self._is_closed:
                self._streams.client_closed.set()
                await self._streams.end_requested.wait()
            raise
        if isinstance(item, SessionMessage):
            self._streams.record_received(item.message)
        return item

    async def _parse(self, line: bytes) -> SessionMessage | Exception:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            return await self._refuse(refusal(line, error), error)
        if isinstance(message, types.JSONRPCNotification) and b'"id"' in line:
            # The SDK takes a request whose id is null for a notification.
            answer = invalid_request(json.loads(line))
            if answer is not None:
                return await self._refuse(answer, ValueError(answer.error.message))
        return SessionMessage(message)

    async def _refuse(self, answer: types.JSONRPCError | None, error: Exception) -> Exception:
        """Send the answer, if any. Return the error for the SDK."""
        if answer is not None:
            await self._streams.writer.write(encode(answer))
        return error


class ClientAnswers(ClosingStream):
    """The SDK's write stream for one client."""

    def __init__(self, streams: ClientStreams) -> None:
        self._streams = streams
        self._is_closed = False

    async def send(self, item: SessionMessage) -> None:
        if self._is_closed:
            raise anyio.ClosedResourceError
        try:
            await self._streams.writer.write(encode(item.message))
        finally:
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                self._streams.record_answered(item.message.id)

    async def aclose(self) -> None:
        self._is_closed = True
