"""The background server: it serves every client of its data folder over its local socket, until nobody needs it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from mcp.server.runner import serve_dual_era_loop
from pydantic import ValidationError

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.node import NODES
from ..client_streams import LINE_LIMIT, ClientStreams, LineMessages, client_streams
from ..cluster.owner import Owner
from ..config.messages import Layer, describe
from ..config.model import Config
from ..gateway.gateway import Gateway
from ..protocol.server import StateholdServer
from ..sdk.caller import COMMAND_SCOPE, PIN_SCOPE
from ..shutdown import Shutdown
from ..sockets.command import VERB as COMMAND
from ..sockets.local_socket import Handler, send_content, send_error
from ..sockets.request import find_socket
from .commands import CommandRequest, is_new, names
from .folder import SharedFolder
from .request import ENDING, STATUS, STOP, VERB, ClientRequest, is_newer
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
    `server.linger_seconds` no client was connected, no session live and no console open. `has_viewer` tells whether one is.
    """

    def __init__(
        self,
        gateway: Gateway,
        folder: SharedFolder,
        settings: Mapping[str, str],
        shutdown: Shutdown,
        has_viewer: Callable[[], bool],
    ) -> None:
        self._gateway = gateway
        self._has_viewer = has_viewer
        self._folder = folder
        self._settings = settings
        self._shutdown = shutdown
        self._version = version("statehold")
        self._mcp_server = StateholdServer(
            gateway, version=self._version, pinned_name=gateway.config.server.session
        )
        self.owner = Owner(gateway.registry, self._mcp_server.forwarded_requests)
        self._clients = 0
        self._had_client = anyio.Event()
        self._client_left = anyio.Event()
        self._drained = anyio.Event()
        self._started_at = time.time()

    def verbs(self) -> dict[str, Handler]:
        """Return the handlers of the local socket. They outlive serve()."""
        return {
            VERB: self._answer,
            COMMAND: self._answer_command,
            STATUS: self._answer_status,
            STOP: self._answer_stop,
        }

    async def serve(self, report_listening: Callable[[Path], None]) -> None:
        """Accept clients until the shutdown begins, then drain the sessions and wait for the end of the connections.

        Raises:
            OSError: the folder cannot be written.
        """
        path = Path(find_socket(self._folder.data / NODES, self._gateway.node.id))
        with self._folder.published(path):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_unused)
                report_listening(path)
                await self._shutdown.begin_event.wait()
                tasks.cancel_scope.cancel()
        await self._gateway.drain()
        self._drained.set()
        while self._clients:
            await self._client_left.wait()

    async def _end_when_unused(self) -> None:
        linger = self._gateway.config.server.linger_seconds
        with anyio.move_on_after(FIRST_CLIENT_SECONDS):
            await self._had_client.wait()
        used_at = anyio.current_time()
        while True:
            if self._clients or self._live_sessions() or self._has_viewer():
                used_at = anyio.current_time()
            elif anyio.current_time() - used_at >= linger:
                logger.info(
                    "no client is connected, no session live, no console open: the server ends"
                )
                self._shutdown.begin()
                return
            await anyio.sleep(min(CHECK_SECONDS, max(LEAST_CHECK_SECONDS, linger / 10)))

    def _live_sessions(self) -> int:
        sessions = self._gateway.registry.owned_sessions()
        return sum(s.status not in (Status.PAUSED, Status.CLOSED) for s in sessions)

    async def _answer_status(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            await send_content(connection, self._status())

    async def _answer_stop(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            logger.info("stopped by pid %.20s", members.get("pid"))
            self._shutdown.begin()
            await send_content(connection, self._status())

    async def _answer(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                request = ClientRequest.parse(members)
                is_newer_client = is_newer(request.version, self._version)
                if is_newer_client and not self._shutdown.begin_event.is_set():
                    logger.info("a client of version %.40s connected: it ends", request.version)
                    self._shutdown.begin()
                if self._shutdown.begin_event.is_set():
                    await send_error(connection, ENDING, "The server ends.", "Connect again.")
                    return
                self._check(request.settings, request.session)
            except InvalidArgument as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            state = {} if request.session is None else {PIN_SCOPE: request.session}
            await self._serve_client(connection, {}, state)

    async def _answer_command(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                request = CommandRequest.parse(members)
                if self._shutdown.begin_event.is_set():
                    await send_error(connection, ENDING, "The server ends.", "Try again.")
                    return
                content = await self._describe_session(request)
            except SessionError as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            # Without a session the list of the tools is that of calls that name one on the command line.
            state = {PIN_SCOPE: request.session or "", COMMAND_SCOPE: True}
            await self._serve_client(connection, content, state)

    async def _describe_session(self, request: CommandRequest) -> JSON:
        """Return the answer to the request of a command. Raises SessionError if it is refused."""
        session = request.session
        if session is None:
            self._check(request.settings, None)
            return {"names": await names(self._gateway)}
        # A session that is given by its id exists, or is not found.
        self._check(request.settings, None if session.startswith("sh_") else session)
        return {"is_new": await is_new(self._gateway, session, request.presence)}

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": self._version,
            "started_at": self._started_at,
            "clients": self._clients,
            "live_sessions": self._live_sessions(),
            "log": str(self._folder.log),
        }

    def _check(self, settings: Mapping[str, str] | None, session: str | None) -> None:
        """Raises InvalidArgument when a client cannot be served as it asks."""
        different = [] if settings is None else differences(settings, self._settings)
        if different:
            stop = shlex.join(["statehold", "stop", "--data", str(self._folder.data)])
            raise InvalidArgument(
                f"the server that runs for {self._folder.data} has other settings than this client asks for "
                f"({', '.join(different)}); run: {stop}, then start this client again"
            )
        if session is None:
            return
        values = {"server": {"session": session}}
        try:
            Config.model_validate(values)
        except ValidationError as error:
            text = describe(error.errors(include_url=False), [Layer("flags", Path(), values)])
            raise InvalidArgument(text) from None

    async def _serve_client(
        self, connection: socket.socket, content: JSON, state: dict[str, Any]
    ) -> None:
        """Answer the first line with `content`, and serve MCP. Meanwhile this client keeps the server running."""
        self._clients += 1
        self._had_client.set()
        try:
            await send_content(connection, content)
            await self._serve_lines(connection, state)
        finally:
            self._clients -= 1
            self._client_left.set()
            self._client_left = anyio.Event()

    async def _serve_lines(self, connection: socket.socket, state: dict[str, Any]) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=LINE_LIMIT)
        # With a limit of 0, drain() waits until everything is written, so no message is lost at the end.
        writer.transport.set_write_buffer_limits(0)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        with closing(writer):
            async with client_streams(LineMessages(reader, write)) as streams:
                await self._serve_streams(streams, state)

    async def _serve_streams(self, streams: ClientStreams, state: dict[str, Any]) -> None:
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

    async def _watch_client(self, streams: ClientStreams, state: dict[str, Any]) -> None:
        """End a connection when its client has closed its side and its requests are answered, or the grace time is over."""
        await streams.client_closed.wait()
        if COMMAND_SCOPE not in state:
            # The answers of a command are sent by another one.
            self._mcp_server.waiting_calls.abandon(state)
        streams.abandon_subscriptions()
        await streams.wait_answered(self._gateway.config.timeouts.close_grace)
        await streams.end()

    async def _end_when_drained(self, streams: ClientStreams) -> None:
        await self._drained.wait()
        # The pipe of the client subscribes at the next server.
        streams.abandon_subscriptions()
        await streams.end()


__all__ = ["SharedServer"]
