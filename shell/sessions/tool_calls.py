"""The sessions that a command names, and calls of our own tools on them: in the process that holds one, else in a server."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from ...server.config.model import Config
from ...server.exit_codes import USAGE
from ...server.operate import sessions
from ...server.operate.requests import VERB, OperatorRequest, ProcessUnavailable, ask
from ...server.operate.sessions import find_record
from ...server.printing import is_terminal, write_error
from ...server.sockets.processes import list_nodes
from ...server.sockets.request import Refused
from ...sessions.errors import InvalidArgument, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.node import NODES
from ...sessions.records import SessionRecord
from ...sessions.times import duration_of
from ..output import CommandError
from ..parser import CommandLine
from ..shared import start_and_send

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


async def find_session(store: SQLStore, ref: str, data: Path) -> SessionRecord:
    """Return the session with an id or a name; see find_record().

    Raises:
        CommandError: there is no such session, or the name is ambiguous.
    """
    try:
        return await find_record(store, ref)
    except SessionNotFound as error:
        raise CommandError.session_unknown(ref, data, error.message) from None
    except InvalidArgument as error:
        raise CommandError("ambiguous", error.message, USAGE) from None


def parse_duration(text: str, flag: str) -> float:
    """Return the duration that a flag has, in seconds; see duration_of().

    Raises:
        CommandError: the text is no such duration.
    """
    seconds = duration_of(text)
    if seconds is None:
        raise CommandError.usage(f"{flag}: should be a time such as 30d, 12h, 45min or 90s")
    return seconds


def parse_metadata(text: str) -> JSON:
    """Read the value of --metadata.

    Raises:
        CommandError: it is no JSON object.
    """
    try:
        return sessions.parse_metadata(text)
    except InvalidArgument as error:
        raise CommandError.usage(error.message) from None


_ELSEWHERE: Final = ("session_not_found", "service_not_bound")
"""Error codes of a process that cannot open the session, after which another process is asked."""
SECONDS: Final = 125.0
"""Seconds that a tool may take in a process, and some for its answer."""


class ToolCaller:
    """Calls tools for one command, whose line names the settings of a server that it starts."""

    def __init__(self, config: Config, arguments: CommandLine) -> None:
        self.config = config
        self._arguments = arguments

    async def call(self, record: SessionRecord, tool: str, **arguments: Any) -> JSON:
        """Call a tool on a session and return the content of its result.

        The process that holds the session runs it. If there is none, another running process does, the latest first, and
        then a background server, which is started. A session of a killed process is taken over by the one that is asked.

        Raises:
            CommandError: the tool refused, or no server can be started.
        """
        nodes = [node for node in list_nodes(self.config.data) if node != record.node]
        for node in nodes if record.node is None else [record.node, *nodes]:
            try:
                content = await self.ask(record, node, tool, **arguments)
            except CommandError as error:
                if error.code not in _ELSEWHERE or node == record.node:
                    raise
            else:
                if content is not None:
                    return content
        if is_terminal(sys.stderr):
            write_error("statehold: starting the server\n")
        members = _request(record, tool, arguments).model_dump()
        send = partial(start_and_send, self.config.data, self._arguments, VERB, members)
        try:
            exchange = await anyio.to_thread.run_sync(partial(send, seconds=SECONDS))
        except Refused as error:
            raise _error(record, error) from None
        except RuntimeError as error:
            raise CommandError("service_unavailable", str(error)) from None
        exchange.connection.close()
        return dict(exchange.content)

    async def ask(
        self, record: SessionRecord, node: str, tool: str, **arguments: Any
    ) -> JSON | None:
        """Call a tool in one process. Returns None when that process does not answer.

        Raises:
            CommandError: the tool refused.
        """
        request = _request(record, tool, arguments)
        try:
            return await ask(self.config.data / NODES, node, request, seconds=SECONDS)
        except ProcessUnavailable:
            return None
        except Refused as error:
            raise _error(record, error) from None


def _request(record: SessionRecord, tool: str, arguments: JSON) -> OperatorRequest:
    all_arguments = {"session_id": record.id, **arguments}
    return OperatorRequest(tool=tool, arguments=all_arguments, owner=record.owner)


def _error(record: SessionRecord, error: Refused) -> CommandError:
    return CommandError.of(record, error.code, error.message, error.recovery)
