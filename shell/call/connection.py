"""The connection of a command to the background server, which is started if there is none, and requests over it.

It speaks MCP of 2026-07-28, one request after the other. Everything here blocks.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from ...server.config.data_folder import DATA_VARIABLE, find_data_folder
from ...server.printing import complain, is_terminal, write_error
from ...server.sockets.command import ANY, VERB
from ...server.sockets.processes import ask_server
from ...server.sockets.request import (
    Exchange,
    Refused,
    Unanswered,
    Unreachable,
    as_list,
    as_object,
    is_unread,
)
from .words import SETTINGS, Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol/"
PREFIX = "STATEHOLD_"
"""The beginning of the variables that are settings."""
REPLY_SECONDS = 20.0
CANCEL_SECONDS = 2.0
"""Seconds that a cancelled request has for its answer."""
_READ_BYTES = 1 << 16


class Failure(Exception):
    """Raised when no request can be made. Its text is one line; `code` is that of the error, if the server sent one."""

    def __init__(self, message: str, code: str = "", recovery: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.recovery = recovery


class ServerLost(Exception):
    """Raised when the server ended before it answered. `is_unread`: it cannot have begun the request."""

    is_unread = False

    def __init__(self, reason: str = "the server ended") -> None:
        super().__init__(reason)


class RequestFailed(Exception):
    """Raised when the server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class OutOfTime(Exception):
    """Raised when no answer came in time. The request was cancelled."""


def data_folder(words: Words) -> str:
    """Return the data folder that a command line means.

    Raises:
        Failure: the file of --config cannot be read.
    """
    options = words.options
    try:
        return find_data_folder(
            data=options.get("--data"), config=options.get("--config"), environ=os.environ
        )
    except ValueError as error:
        raise Failure(str(error), "invalid_argument") from None


def _asked_settings(words: Words) -> dict[str, str]:
    """Return digests of the settings that the flags and the environment of a command ask of a server."""
    flags = {name: words.options[name] or True for name in SETTINGS if words.has(name)}
    flags.pop("--data", None)
    names = (name.upper() for name in os.environ)
    if not flags and not any(n.startswith(PREFIX) and n != DATA_VARIABLE for n in names):
        return {}
    from ...server.shared.requested_settings import requested_settings

    return requested_settings(flags, os.environ)


class LocalConnection:
    """A connection to the server for one command. It ends with close()."""

    def __init__(
        self, words: Words, session: str | None, presence: str = ANY, *, starts: bool = True
    ) -> None:
        """`starts`: a server is started if there is none."""
        self._words = words
        self._session = session
        self._presence = presence
        self._starts = starts
        self._exchange: Exchange | None = None
        self._unread = bytearray()
        self._number = 0
        self.is_new = False
        """Whether the session is created by the first call."""
        self.names: list[str] = []
        """The names of the open sessions, if no session was named; ids of those without."""
        self.ids: list[str] = []
        """The ids of those with a name."""

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result. Ctrl-C cancels the request, and is raised after its answer.

        Raises:
            Failure: there is no server, or it does not serve this command.
            RequestFailed: the server answered with an error.
            ServerLost: the server ended.
            OutOfTime: there was no answer within `seconds`.
        """
        self._number += 1
        deadline = None if seconds is None else time.monotonic() + seconds
        line = _encode(
            request_message(self._number, method, params, has_progress=on_progress is not None)
        )
        try:
            if self._exchange is None:
                self._open(line)
            else:
                self._exchange.connection.sendall(line)
            return self._answer(deadline, on_progress)
        except TimeoutError:
            self._cancel()
            raise OutOfTime from None
        except KeyboardInterrupt:
            self._cancel()
            raise
        except ServerLost:
            self.close()
            raise
        except OSError as error:
            self.close()
            lost = ServerLost()
            lost.is_unread = is_unread(error)
            raise lost from None

    def close(self) -> None:
        """Close it; the next request connects again. The session may exist by then."""
        self._presence = ANY
        if self._exchange is not None:
            self._exchange.connection.close()
            self._exchange = None
            self._unread.clear()

    def _open(self, line: bytes) -> None:
        """Connect, and send a first line; it is not sent if the server refuses the command."""
        words = self._words
        members: dict[str, Any] = {"session": self._session, "presence": self._presence}
        folder = data_folder(words)
        if settings := _asked_settings(words):
            members["settings"] = settings
        try:
            self._exchange = self._connect(folder, members, line)
        except Refused as error:
            raise Failure(str(error), error.code, error.recovery) from None
        except Unanswered as error:
            raise Failure(f"the server of {folder}: {error}") from None
        self.is_new = self._exchange.content.get("is_new") is True
        self.names = [str(name) for name in as_list(self._exchange.content.get("names"))]
        self.ids = [str(each) for each in as_list(self._exchange.content.get("ids"))]
        note = self._exchange.content.get("note")
        if note and self._starts:
            import shlex

            complain(f"{note}; run: statehold stop --data {shlex.quote(folder)}")
        self._unread = bytearray(self._exchange.received)

    def _connect(self, folder: str, members: dict[str, Any], line: bytes) -> Exchange:
        try:
            return ask_server(folder, VERB, members, seconds=REPLY_SECONDS, following=line)
        except Unreachable:
            if not self._starts:
                raise Failure(f"no server runs for {folder}") from None
        from ..commands import parse_command_line
        from ..shared import start_and_send

        if is_terminal(sys.stderr):
            write_error("statehold: starting the server\n")
        try:
            arguments = parse_command_line(["status", *self._words.settings])
            return start_and_send(folder, arguments, VERB, members, line)
        except RuntimeError as error:
            raise Failure(str(error)) from None

    def _answer(
        self, deadline: float | None, on_progress: Callable[[dict[str, Any]], None] | None
    ) -> dict[str, Any]:
        while True:
            message = as_object(json.loads(self._line(deadline)))
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    error = as_object(message["error"])
                    raise RequestFailed(int(error.get("code", 0)), str(error.get("message")))
                return as_object(message.get("result"))
            if message.get("method") == "notifications/progress" and on_progress is not None:
                on_progress(as_object(message.get("params")))

    def _line(self, deadline: float | None) -> bytes:
        assert self._exchange is not None
        connection, start = self._exchange.connection, 0
        while (end := self._unread.find(b"\n", start)) < 0:
            start = len(self._unread)
            if deadline is not None:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ServerLost
            self._unread += data
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _cancel(self) -> None:
        """Cancel the request and wait for its answer, so that the call has ended when the command ends."""
        if self._exchange is None:
            return
        params = {"requestId": self._number, "reason": "The command was interrupted."}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        try:
            self._exchange.connection.settimeout(CANCEL_SECONDS)
            self._exchange.connection.sendall(_encode(message))
            # A cancelled request has no answer: the server closes after the end of our side.
            self._exchange.connection.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + CANCEL_SECONDS
            while time.monotonic() < deadline:
                self._line(deadline)
        except (OSError, ServerLost):
            pass
        self.close()


def request_message(
    number: int, method: str, params: dict[str, Any], *, has_progress: bool
) -> dict[str, Any]:
    """Return a request of 2026-07-28 as JSON-RPC."""
    meta: dict[str, Any] = {
        f"{META}protocolVersion": PROTOCOL,
        f"{META}clientInfo": {"name": "statehold-call", "version": "1"},
        f"{META}clientCapabilities": {
            "elicitation": {"form": {}, "url": {}},
            "extensions": {f"{META}tasks": {}},
        },
        **as_object(params.get("_meta")),
    }
    if has_progress:
        meta["progressToken"] = number
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": method,
        "params": {**params, "_meta": meta},
    }


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n"
