"""The messages of one client, as the SDK's server takes them: over stdin and stdout, or over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..tools.processes.framing import encode
from .protocol.error_translation import invalid_request, refusal
from .sdk.access import create_context_streams

LINE_LIMIT = 64 << 20
"""Bytes of one message at most; a longer one ends the connection."""
ANSWER_SECONDS = 2.0
"""Seconds that writing the last answers may take when a connection ends."""


class Messages(Protocol):
    """The messages from and to one client."""

    async def receive(self) -> SessionMessage | Exception | None:
        """Return the next message, an error for the SDK, or None at the end."""
        ...

    async def send(self, message: SessionMessage) -> None:
        """Return when the message is written.

        Raises:
            ConnectionError: the client reads no more.
        """
        ...


class ClientStreams:
    """The streams of one client.

    The SDK cancels the running calls when its read stream ends. So the stream ends only when end() is called, which gives
    running calls time to finish.
    """

    def __init__(self, read_stream: Any, write_stream: Any) -> None:
        self.read_stream = read_stream
        self.write_stream = write_stream
        self.client_closed = anyio.Event()
        """Set when the client has closed its side."""
        self.tools_listed = anyio.Event()
        """Set when the first request for the tool list was answered."""
        self._list_ids: set[Any] = set()
        self._unanswered_ids: set[Any] = set()
        self._listen_ids: set[Any] = set()
        self._answer_sent = anyio.Event()
        self._end_requested = anyio.Event()

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
        self._end_requested.set()

    async def wait_ended(self) -> None:
        await self._end_requested.wait()

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
            # A cancelled request is not answered.
            self._record_answered((message.params or {}).get("requestId"))

    def record_sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._record_answered(message.id)

    def _record_answered(self, request: object) -> None:
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


class LineMessages:
    """The messages as lines, on the event loop."""

    def __init__(
        self, lines: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._lines = lines
        self._write = write

    async def receive(self) -> SessionMessage | Exception | None:
        try:
            line = await self._lines.readline()
        except (ValueError, ConnectionError):
            return None
        if not line:
            return None
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

    async def _refuse(
        self, answer: types.JSONRPCError | None, error: Exception
    ) -> Exception | None:
        """Send the answer, if any. Return the error for the SDK, None if the client has closed stdout."""
        if answer is not None:
            try:
                await self._write(encode(answer))
            except ConnectionError:
                return None
        return error

    async def send(self, message: SessionMessage) -> None:
        await self._write(encode(message.message))


@asynccontextmanager
async def client_streams(channel: Messages) -> AsyncGenerator[ClientStreams]:
    received, read_stream = create_context_streams[SessionMessage | Exception](0)
    write_stream, to_send = create_context_streams[SessionMessage](0)
    streams, all_sent = ClientStreams(read_stream, write_stream), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, channel, received, streams)
        tasks.start_soon(_send, channel, to_send, streams, all_sent)
        yield streams
        await write_stream.aclose()
        with anyio.move_on_after(ANSWER_SECONDS):
            await all_sent.wait()
        tasks.cancel_scope.cancel()


async def _receive(channel: Messages, out: Any, streams: ClientStreams) -> None:
    async with out, anyio.create_task_group() as tasks:

        async def receive_all() -> None:
            while (item := await channel.receive()) is not None:
                if isinstance(item, SessionMessage):
                    streams.record_received(item.message)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The server may have ended before its client: then read to the end, and drop what comes.
                    await out.send(item)
            streams.client_closed.set()

        tasks.start_soon(receive_all)
        await streams.wait_ended()
        tasks.cancel_scope.cancel()


async def _send(
    channel: Messages, messages: Any, streams: ClientStreams, all_sent: anyio.Event
) -> None:
    client_reads = True
    try:
        async with messages:
            async for item in messages:
                try:
                    if client_reads:
                        await channel.send(item)
                except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The client has closed stdout. Drop answers until the end of stdin ends the process: if this stream
                    # were closed, each sender would get an error.
                    client_reads = False
                streams.record_sent(item.message)
    finally:
        all_sent.set()
