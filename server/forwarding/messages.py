"""The messages between the node that received a request and the node that owns the session. Each is a line of JSON.

The first message on a kept connection is a request; the next request follows the result of the one before. The owner sends
`{"accepted": true}` when it begins, then any number of `{"notify": METHOD, "params"}` and `{"ask": N, "method", "params"}`,
then `{"result"}` or `{"error": {"code", "message", "data"}}`. It sends `{"not_owner": true}` instead if nothing ran, because
it does not own the session or ends, and `{"refused": true}` if it cannot serve the other node's clients. The other node
answers a question with `{"answer": N, "result"}` or `{"answer": N, "error"}`, and cancels the request by closing the
connection. A result that carries a notice has its number as `"notice"`; between requests, `{"undelivered": NUMBER}` says
that the client did not get it.

Nodes of one data folder use a Unix socket. Between two machines a connection begins with a handshake, see handshake.py, and
each message to the owner follows the line of its assertion, see assertion.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
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

    `principal` travels as the node that authenticated the client knows it: the Unix socket admits only this user's
    processes, and the peer port only requests that a node of the cluster has signed. The client's token stays behind.
    """

    method: str
    params: JSON | None
    session_id: str
    """The session that the owner is expected to own. Empty for one that is yet to be created."""
    epoch: int
    """The epoch in which the owner is expected to own it. 0: any."""
    adopt: bool
    """Whether the other node is to claim or create the session, because the sender takes on no more."""
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
    begin_before: float = 0.0
    """The time of the connection's clock, in seconds, after which the owner must not begin. Set when the request is sent."""

    @classmethod
    def of_node(
        cls,
        method: str,
        params: JSON,
        principal: Principal,
        namespace: str,
        *,
        session_id: str = "",
        version: str = "",
    ) -> ForwardedRequest:
        """Return a request that the node makes for a principal, without the features of a client."""
        return cls(
            method=method,
            params=params,
            session_id=session_id,
            epoch=0,
            adopt=False,
            principal=principal,
            pin=None,
            namespace=namespace,
            is_auto=False,
            version=version,
            capabilities={},
            log_level=None,
            can_ask=False,
        )

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
    """One connection between two nodes of a machine, at either end. close() may be called twice."""

    clock: Callable[[], float] = time.monotonic
    """A clock that both nodes can read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # With a limit of 0, drain() waits until everything is written, so no message is lost at the end.
        writer.transport.set_write_buffer_limits(0)
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def send_nowait(self, message: Mapping[str, Any]) -> None:
        self._writer.write(self._lines(message))

    async def send(self, message: Mapping[str, Any]) -> None:
        """Return when the message is written.

        Raises:
            ConnectionEnded: the other node reads no more.
        """
        try:
            self._writer.write(self._lines(message))
            await self._writer.drain()
        except (OSError, RuntimeError):
            raise ConnectionEnded from None

    def _lines(self, message: Mapping[str, Any]) -> bytes:
        return encode(message)

    async def receive(self) -> JSON:
        """Return the next message.

        Raises:
            ConnectionEnded: there is none.
        """
        return parse(await self._receive_line())

    async def _receive_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except (OSError, ValueError):
            raise ConnectionEnded from None

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Close it without waiting for what the other node has not read."""
        self._writer.transport.abort()


def parse(line: bytes) -> JSON:
    """Return the message of a line.

    Raises:
        ConnectionEnded: the line is not whole, or no message.
    """
    try:
        # Not orjson: it would turn an integer beyond 64 bits into a float.
        message: object = decode(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        raise ConnectionEnded from None
    if not isinstance(message, dict):
        raise ConnectionEnded
    return cast("JSON", message)


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
    "encode",
    "error_message",
    "parse",
    "raise_error",
]
