"""The clients and commands of this machine at a server: they reach it over its local socket, and speak MCP as on stdio."""

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
from typing import Any, Literal

import anyio
import anyio.to_thread
from pydantic import ValidationError

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import LOCAL
from ..client_streams import ClientStreams, LineWriter
from ..config.mistakes import Layer, describe
from ..config.model import Config
from ..gateway.gateway import Gateway
from ..protocol.server import StateholdServer
from ..sdk.caller import COMMAND_SCOPE, NOTE_SCOPE, PIN_SCOPE
from ..sockets.command import NEW
from ..sockets.command import VERB as COMMAND
from ..sockets.local_socket import Handler, send_content, send_error
from ..sockets.processes import ENDING, PROCESS
from .commands import CommandRequest, is_new, session_exists
from .request import STOP, VERB, ClientRequest, read_build_id
from .requested_settings import differences, label

LOOK_SECONDS = 60.0
"""Seconds between two looks whether the code on the disk has changed, while commands come."""

Kind = Literal["background", "serve"]

logger = logging.getLogger("statehold.server")


class LocalClients:
    """The clients and commands at one server, a background server or `statehold serve`. end() waits for the last one.

    It answers the verbs of a server on the local socket. The methods are called in the event loop of the server.
    """

    def __init__(
        self,
        gateway: Gateway,
        mcp_server: StateholdServer,
        settings: Mapping[str, str],
        *,
        kind: Kind,
        build: str,
        stop: Callable[[], None],
        is_ending: Callable[[], bool],
        log: Path | None = None,
        supervisor: int | None = None,
    ) -> None:
        """`settings`: those that the server was started with; see requested_settings(). `build`: its build_id().

        `stop` begins its end. A background server ends when a client of another build starts; `serve` belongs to a person.
        `supervisor`: the pid of the process that ends together with this one, if there is one.
        """
        self._gateway = gateway
        self._mcp_server = mcp_server
        self._settings = settings
        self._kind = kind
        self._stop = stop
        self._is_ending = is_ending
        self._build = build
        self._log = log
        self._supervisor = supervisor
        self.count = 0
        """Clients and commands that are connected now."""
        self.first = anyio.Event()
        """Set when the first of them connects."""
        self._look_at = 0.0
        self._is_old = False
        self._left = anyio.Event()
        self._drained = anyio.Event()
        self._started_at = time.time()
        self._creating: set[str] = set()
        """The names of sessions that a connected command creates with its call."""

    def verbs(self) -> dict[str, Handler]:
        """Return the handlers of the local socket."""
        return {
            VERB: self._answer_client,
            COMMAND: self._answer_command,
            PROCESS: self._answer_process,
            STOP: self._answer_stop,
        }

    async def end(self) -> None:
        """End the connections after their last answers, and wait for that. The sessions are drained before."""
        self._drained.set()
        while self.count:
            await self._left.wait()

    def live_sessions(self) -> int:
        """Return how many sessions of this process are open and not paused."""
        sessions = self._gateway.registry.owned_sessions()
        return sum(s.status not in (Status.PAUSED, Status.CLOSED) for s in sessions)

    async def _answer_process(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            await send_content(connection, self._describe())

    async def _answer_stop(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            logger.info("stopped by pid %.20s", members.get("pid"))
            self._stop()
            await send_content(connection, self._describe())

    def _describe(self) -> dict[str, Any]:
        node = self._gateway.node.record
        return {
            "pid": os.getpid(),
            "kind": self._kind,
            "node": node.id,
            "supervisor": self._supervisor or os.getpid(),
            "address": node.address,
            "version": version("statehold"),
            "started_at": self._started_at,
            "clients": self.count,
            "live_sessions": self.live_sessions(),
            "ending": self._is_ending(),
            **({} if self._log is None else {"log": str(self._log)}),
        }

    async def _answer_client(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                request = ClientRequest.parse(members)
                is_other_build = request.build not in ("", self._build)
                if is_other_build and self._kind == "background" and not self._is_ending():
                    logger.info("a client of another build connected: it ends")
                    self._stop()
                if self._is_ending():
                    await send_error(connection, ENDING, "The server ends.", "Connect again.")
                    return
                note = self._note_other_settings(request.settings)
                if is_other_build:
                    note = f"{self._name()} runs other code than this client; start it again. {note}".rstrip()
                self._check_session(request.session)
            except InvalidArgument as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            state = {} if request.session is None else {PIN_SCOPE: request.session}
            if note:
                state[NOTE_SCOPE] = note
            await self._serve_client(connection, {"note": note} if note else {}, state)

    async def _answer_command(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                request = CommandRequest.parse(members)
                if self._is_ending():
                    await send_error(connection, ENDING, "The server ends.", "Try again.")
                    return
                content = await self._describe_session(request)
            except SessionError as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            # Without a session the list of the tools is that of calls that name one on the command line.
            state = {PIN_SCOPE: request.session or "", COMMAND_SCOPE: True}
            try:
                await self._serve_client(connection, content, state)
            finally:
                if content.get("is_new"):
                    self._creating.discard(request.session or "")

    async def _describe_session(self, request: CommandRequest) -> JSON:
        """Return the answer to the request of a command. Raises SessionError if it is refused."""
        different = differences(request.settings or {}, self._settings)
        note = f"{self._name()} has other settings than {label(different)}" if different else ""
        if not note and await self._has_old_code():
            note = f"{self._name()} runs code from before an update"
        session = request.session
        if session is None:
            return {**await self._gateway.pinned_sessions.references(LOCAL), "note": note}
        # A session that is given by its id exists, or is not found.
        self._check_session(None if session.startswith("sh_") else session)
        creates = await is_new(self._gateway, session, request.presence)
        if creates and session in self._creating:
            # Of several commands at once, one creates it.
            if request.presence == NEW:
                raise session_exists(session)
            creates = False
        elif creates:
            self._creating.add(session)
        return {"is_new": creates, "note": note}

    async def _has_old_code(self) -> bool:
        """Whether the code on the disk is another one than this server runs. A command is too short to read all files."""
        now = anyio.current_time()
        if not self._is_old and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._is_old = await anyio.to_thread.run_sync(read_build_id) != self._build
        return self._is_old

    def _name(self) -> str:
        return f"the server of {self._gateway.config.data} ({self._gateway.node.record.address})"

    def _note_other_settings(self, asked: Mapping[str, str]) -> str:
        """Return a note about settings of the server that a client did not ask for.

        Raises:
            InvalidArgument: the client asks for settings that the server does not have.
        """
        stop = shlex.join(["statehold", "stop", "--data", str(self._gateway.config.data)])
        if different := differences(asked, self._settings):
            raise InvalidArgument(
                f"{self._name()} has other settings than this client asks for with {label(different)}.",
                recovery=f"Run: {stop}, then start this client again.",
            )
        more = sorted(self._settings.keys() - asked.keys())
        if not more:
            return ""
        return (
            f"{self._name()} was started with {label(more)}, which this client does not give; "
            f"for a server with the settings of this client run: {stop}"
        )

    def _check_session(self, session: str | None) -> None:
        """Raises InvalidArgument when a session cannot have this name."""
        if session is None:
            return
        values = {"server": {"session": session}}
        try:
            Config.model_validate(values)
        except ValidationError as error:
            text = describe(error.errors(include_url=False), [Layer("flags", Path(), values)])
            raise InvalidArgument(f"{text}.", recovery="Choose another name.") from None

    async def _serve_client(
        self, connection: socket.socket, content: JSON, state: dict[str, Any]
    ) -> None:
        """Answer the first line with `content`, and serve MCP."""
        self.count += 1
        self.first.set()
        try:
            await send_content(connection, content)
            await self._serve_lines(connection, state)
        finally:
            self.count -= 1
            self._left.set()
            self._left = anyio.Event()

    async def _serve_lines(self, connection: socket.socket, state: dict[str, Any]) -> None:
        streams = ClientStreams(LineWriter())
        transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: streams.read_stream, sock=connection
        )
        streams.writer.connection_made(transport)
        with closing(transport):
            await self._serve_streams(streams, state)

    async def _serve_streams(self, streams: ClientStreams, state: dict[str, Any]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_client, streams, state)
            tasks.start_soon(self._end_when_drained, streams)
            await streams.serve(self._mcp_server, state)
            tasks.cancel_scope.cancel()

    async def _watch_client(self, streams: ClientStreams, state: dict[str, Any]) -> None:
        """End a connection when its client has closed its side and its requests are answered, or the grace time is over."""
        await streams.client_closed.wait()
        if COMMAND_SCOPE not in state:
            # The answers of a command are sent by another one.
            self._mcp_server.open_calls.abandon(state)
        streams.abandon_subscriptions()
        await streams.wait_answered(self._gateway.config.timeouts.close_grace)
        await streams.end()

    async def _end_when_drained(self, streams: ClientStreams) -> None:
        await self._drained.wait()
        # The pipe of the client subscribes at the next server.
        streams.abandon_subscriptions()
        await streams.end()
