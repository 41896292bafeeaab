"""Calls of our own tools from the command line: in the process that holds the session, else in a server."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

import anyio.to_thread

from ...server.config.model import Config
from ...server.operate.requests import VERB, OperatorRequest, ProcessUnavailable, ask
from ...server.printing import is_terminal, write_error
from ...server.sockets.processes import list_nodes
from ...server.sockets.request import Refused
from ...sessions.json_codec import JSON
from ...sessions.node import NODES
from ...sessions.records import SessionRecord
from ..command_line import CommandLine
from ..errors import CommandError
from ..shared import start_and_send

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
