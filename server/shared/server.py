"""The background server: it serves every client of its data folder over a Unix socket, until nobody needs it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.runner import serve_dual_era_loop
from pydantic import ValidationError

from ...sessions.lifecycle import Status
from ..client_streams import LINE_LIMIT, ClientStreams, LineMessages, client_streams
from ..config.messages import Layer, describe
from ..config.model import Config
from ..gateway.gateway import Gateway
from ..protocol.server import StateholdServer
from ..sdk.caller import PIN_SCOPE
from ..shutdown import Shutdown
from ..sockets.unix_listener import accept, listen
from .folder import SharedFolder
from .handshake import LINE_BYTES, READ_SECONDS, MalformedLine, Reply, Request, is_newer
from .requested_settings import differences

FIRST_CLIENT_SECONDS = 10.0
"""Seconds that a server waits for its first client before it may end."""
CHECK_SECONDS = 5.0
"""Seconds between two checks whether the server is needed."""
LEAST_CHECK_SECONDS = 0.1

logger = logging.getLogger("statehold.server")


class SharedServer:
    """The server of one data folder. serve() runs until `shutdown` begins, drains, and ends every connection.

    It begins the shutdown itself: when a client of a newer version connects, when it is told to stop, and when for
    `server.linger_seconds` no client was connected and no session live.
    """

    def __init__(
        self,
        gateway: Gateway,
        folder: SharedFolder,
        settings: Mapping[str, str],
        shutdown: Shutdown,
    ) -> None:
        self._gateway = gateway
        self._folder = folder
        self._settings = settings
        self._shutdown = shutdown
        self._version = version("statehold")
        self._mcp_server = StateholdServer(
            gateway, version=self._version, pinned_name=gateway.config.server.session
        )
        self._clients = 0
        self._had_client = anyio.Event()
        self._drained = anyio.Event()
        self._started_at = time.time()

    async def serve(self, report_listening: Callable[[Path], None]) -> None:
        """Accept clients until the shutdown begins, then drain the sessions and end the connections.

        Raises:
            OSError: the socket cannot be created.
        """
        async with anyio.create_task_group() as connections:
            await self._accept_clients(connections, report_listening)
            await self._gateway.drain()
            self._mcp_server.stop_listening()
            self._drained.set()

    async def _accept_clients(
        self, connections: TaskGroup, report_listening: Callable[[Path], None]
    ) -> None:
        """Accept clients until the shutdown begins."""
        path = self._folder.claim_socket()
        with listen(path, self._folder.remove_socket) as listener:
            async with anyio.create_task_group() as tasks:
                serve = partial(accept, line_limit=LINE_LIMIT)
                tasks.start_soon(serve, listener, connections, self._answer)
                tasks.start_soon(self._end_when_unused)
                report_listening(path)
                await self._shutdown.begin_event.wait()
                tasks.cancel_scope.cancel()

    async def _end_when_unused(self) -> None:
        linger = self._gateway.config.server.linger_seconds
        with anyio.move_on_after(FIRST_CLIENT_SECONDS):
            await self._had_client.wait()
        used_at = anyio.current_time()
        while True:
            if self._clients or self._live_sessions():
                used_at = anyio.current_time()
            elif anyio.current_time() - used_at >= linger:
                logger.info("nobody is connected and no session is live: the server ends")
                self._shutdown.begin()
                return
            await anyio.sleep(min(CHECK_SECONDS, max(LEAST_CHECK_SECONDS, linger / 10)))

    def _live_sessions(self) -> int:
        sessions = self._gateway.registry.owned_sessions()
        return sum(s.status not in (Status.PAUSED, Status.CLOSED) for s in sessions)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # With a limit of 0, drain() waits until everything is written, so no message is lost at the end.
        writer.transport.set_write_buffer_limits(0)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        request = await _read_request(reader)
        if request is None:
            return
        reply = self._reply(request)
        if reply.outcome != "welcome":
            await write(reply.line())
            return
        # From here on this client keeps the server running.
        self._clients += 1
        self._had_client.set()
        try:
            await write(reply.line())
            async with client_streams(LineMessages(reader, write)) as streams:
                await self._serve_client(streams, request)
        finally:
            self._clients -= 1

    def _reply(self, request: Request) -> Reply:
        """Return the reply to a request, and begin the shutdown if the request is a reason for it."""
        if request.kind == "status":
            return Reply("status", status=self._status())
        if request.kind == "stop":
            logger.info("stopped by pid %d", request.pid)
            self._shutdown.begin()
            return Reply("stopping", status=self._status())
        if not self._shutdown.begin_event.is_set() and is_newer(request.version, self._version):
            logger.info("a client of version %.40s connected: this server ends", request.version)
            self._shutdown.begin()
        if self._shutdown.begin_event.is_set():
            return Reply("retry")
        problem = self._problem(request)
        return Reply("welcome") if problem is None else Reply("refused", problem)

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": self._version,
            "started_at": self._started_at,
            "clients": self._clients,
            "live_sessions": self._live_sessions(),
            "log": str(self._folder.log),
        }

    def _problem(self, request: Request) -> str | None:
        """Return why a client cannot be served as it asks, None if it can."""
        names = differences(request.settings, self._settings)
        if names:
            stop = shlex.join(["statehold", "stop", "--data", str(self._folder.data)])
            return (
                f"the server that runs for {self._folder.data} has other settings than this client asks for "
                f"({', '.join(names)}); run: {stop}, then start this client again"
            )
        if request.session is None:
            return None
        values = {"server": {"session": request.session}}
        try:
            Config.model_validate(values)
        except ValidationError as error:
            return describe(error.errors(include_url=False), [Layer("flags", Path(), values)])
        return None

    async def _serve_client(self, streams: ClientStreams, request: Request) -> None:
        state = {} if request.session is None else {PIN_SCOPE: request.session}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_client, streams, state)
            tasks.start_soon(self._end_when_drained, streams)
            await serve_dual_era_loop(
                self._mcp_server,
                streams.read_stream,
                streams.write_stream,
                lifespan_state=state,
                init_options=self._mcp_server.create_initialization_options(),
            )
            tasks.cancel_scope.cancel()

    async def _watch_client(self, streams: ClientStreams, state: object) -> None:
        """End a connection when its client has closed its side and its requests are answered, or the grace time is over."""
        await streams.client_closed.wait()
        self._mcp_server.waiting_calls.abandon(state)
        streams.abandon_subscriptions()
        await streams.wait_answered(self._gateway.config.timeouts.close_grace)
        await streams.end()

    async def _end_when_drained(self, streams: ClientStreams) -> None:
        await self._drained.wait()
        await streams.end()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Return the request of a process that has connected; None if it sends none, or a malformed one."""
    try:
        with anyio.fail_after(READ_SECONDS):
            line = await reader.readline()
        return Request.parse(line) if len(line) <= LINE_BYTES else None
    except (TimeoutError, MalformedLine, ValueError):
        return None


__all__ = ["SharedServer"]
