"""The messages between the node that received a request and the node that owns the session. Each is a line of JSON.

The first message on a kept connection is a request; the next request follows the result of the one before. The owner sends
`{"accepted": true}` when it begins, then any number of `{"notify": METHOD, "params"}` and `{"ask": N, "method", "params"}`,
then `{"result"}` or `{"error": {"code", "message", "data"}}`. It sends `{"not_owner": true}` instead if nothing ran, because
it does not own the session or ends, and `{"refused": true}` if it cannot serve the other node's clients. The other node
answers a question with `{"answer": N, "result"}` or `{"answer": N, "error"}`, and cancels the request by closing the
connection. A result that carries a notice has its number as `"notice"`; between requests, `{"undelivered": NUMBER}` says
that the client did not get it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json

from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ..client_streams import LINE_LIMIT

NOT_OWNER: JSON = {"not_owner": True}
ACCEPTED: JSON = {"accepted": True}
REFUSED: JSON = {"refused": True}


class ConnectionEnded(Exception):
    """Raised when the other node has closed the connection, or sends something that is no message."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """An MCP request as its client sent it, with what the owner has to know of the client.

    `principal` travels as the node that authenticated the client knows it: the socket admits only this user's processes.
    """

    method: str
    params: JSON | None
    session_id: str
    """The session that the owner is expected to own."""
    principal: Principal
    pin: str | None
    """The name of the client's pinned session."""
    namespace: str
    """The namespace of names of sessions."""
    is_auto: bool
    """Whether the client need not name its session."""
    version: str
    """The client's protocol version."""
    capabilities: JSON
    log_level: str | None
    """The level that a legacy client has set."""
    can_ask: bool
    """Whether the client can be asked while the request runs."""
    begin_before: float
    """The time of this machine's monotonic clock, in seconds, after which the owner must not begin the request."""

    def to_json(self) -> JSON:
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "principal": self.principal.model_dump(),
        }

    @classmethod
    def parse(cls, message: JSON) -> ForwardedRequest:
        """Read a request.

        Raises:
            ConnectionEnded: the message is no request.
        """
        try:
            principal = Principal.model_validate(message["principal"])
            return cls(**cast("dict[str, Any]", {**message, "principal": principal}))
        except (KeyError, TypeError, ValueError):
            raise ConnectionEnded from None


class MessageConnection:
    """One connection between two nodes, at either end. close() may be called twice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # With a limit of 0, drain() waits until everything is written, so no message is lost at the end.
        writer.transport.set_write_buffer_limits(0)
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def send_nowait(self, message: Mapping[str, Any]) -> None:
        self._writer.write(encode(message))

    async def send(self, message: Mapping[str, Any]) -> None:
        """Return when the message is written.

        Raises:
            ConnectionEnded: the other node reads no more.
        """
        try:
            self._writer.write(encode(message))
            await self._writer.drain()
        except (OSError, RuntimeError):
            raise ConnectionEnded from None

    async def receive(self) -> JSON:
        """Return the next message.

        Raises:
            ConnectionEnded: there is none.
        """
        try:
            line = await self._reader.readline()
            # Not orjson: it would turn an integer beyond 64 bits into a float.
            message: object = decode(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            raise ConnectionEnded from None
        if not isinstance(message, dict):
            raise ConnectionEnded
        return cast("JSON", message)

    def close(self) -> None:
        self._writer.close()


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line. Unlike orjson alone, it writes every integer and half a surrogate pair."""
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> object:
    try:
        return from_json(line)
    except ValueError:
        # Half a surrogate pair, which pydantic refuses.
        return json.loads(line)


def error_message(error: MCPError) -> JSON:
    """Return a JSON-RPC error as the member of a message."""
    return {"error": error.error.model_dump(mode="json")}


def raise_error(error: JSON) -> None:
    """Raises the MCPError that error_message() wrote."""
    raise MCPError(error["code"], error["message"], error.get("data"))


__all__ = [
    "ACCEPTED",
    "LINE_LIMIT",
    "NOT_OWNER",
    "REFUSED",
    "ConnectionEnded",
    "ForwardedRequest",
    "MessageConnection",
    "error_message",
    "raise_error",
]
