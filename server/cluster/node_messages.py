"""The requests and the messages between the node that received a request and the node that owns the session.

A node passes on a request as an HTTP request to the owner, with an assertion, see assertion.py:

| method, path | body | answer |
| - | - | - |
| POST /node/requests | an MCP request, see ForwardedRequest | lines of JSON |
| POST /node/answers/KEY | the answer to a question: `{"result"}` or `{"error"}` | 204 |
| POST /node/controls | an operator request, without its owner | a line of JSON |
| POST /node/frames | `{"fps", "tab"}`, for the page of the session of the assertion | pictures, see encode_picture() |
| POST /node/notices/NUMBER | empty; the client did not get the answer that carries the notice | 204 |
| GET /node | empty; the first request between two machines | 204, with the proof of the owner in a header |
| any other | the HTTP request of a client | its response |

Pictures end with the page, or with the connection; a line with `{"error"}` comes instead if there are none.

The owner begins a request with `100 Continue`. It answers 421 instead, or later, if nothing ran because it does not own the
session or ends; and 403 if it cannot serve the other node's clients. The lines of an MCP request are any number of
`{"notify": METHOD, "params"}` and `{"ask": KEY, "method", "params"}`, then `{"result"}` or `{"error": {"code", "message",
"data"}}`. The line of an operator request is that of the verb `operate`: `{"content"}` or `{"error": {"code", "message",
"recovery"}}`. A result that carries a notice has its number as `"notice"`. The other node cancels a request by closing the
connection.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast

import orjson
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json

from ...sessions.json_codec import JSON
from .assertion import NodeRequest
from .node_connection import ConnectionEnded

HTTP_VERB: Final = "http"
"""The verb of the local socket of a process after which its connection is one of HTTP."""
HELLO: Final = "/node"
REQUESTS: Final = "/node/requests"
ANSWERS: Final = "/node/answers/"
NOTICES: Final = "/node/notices/"
OPERATE: Final = "/node/controls"
FRAMES: Final = "/node/frames"
PROOF_HEADER: Final = b"statehold-proof"
NOT_OWNER: Final = 421
REFUSED: Final = 403
LINES: Final = (b"content-type", b"application/x-ndjson")
PICTURES: Final = (b"content-type", b"application/octet-stream")
LENGTH: Final = struct.Struct(">I")
"""The length of what follows: an unsigned number of four bytes, the most significant first."""


class LaterVersion(Exception):
    """Raised for a request of a node that runs a later version. The text names what is not known here."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """An MCP request as its client sent it, with the facts about the client that its answer depends on."""

    method: str
    params: JSON | None
    pin: str | None = None
    """The name of the client's pinned session."""
    is_auto: bool = False
    """Whether the client need not name its session."""
    version: str = ""
    """The client's protocol version."""
    capabilities: JSON | None = None
    log_level: str | None = None
    """The level that a legacy client has set."""
    can_ask: bool = False
    """Whether the client can be asked while the request runs."""
    is_shared: str | bool = False
    """The key of the client's principal, if that of the assertion shares the session with it. Nodes of earlier versions send
    true in place of a key, and take a key for true."""

    @property
    def sharee(self) -> str | None:
        """The key of the client's principal, empty if an earlier version did not send it; None without a share."""
        return self.is_shared if isinstance(self.is_shared, str) else "" if self.is_shared else None

    def to_request(self) -> NodeRequest:
        # A node of an earlier version may not know a member. It can serve the request if that has its default.
        content = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return NodeRequest("POST", REQUESTS, (), encode(content))

    @classmethod
    def parse(cls, body: bytes) -> ForwardedRequest:
        """Read a request.

        Raises:
            ConnectionEnded: the body is no request.
            LaterVersion: it has members that are not known here, which may restrict it.
        """
        members = parse(body)
        known = {field.name for field in fields(cls)}
        try:
            request = cls(**{name: members[name] for name in members.keys() & known})
        except TypeError:
            raise ConnectionEnded from None
        if unknown := members.keys() - known:
            raise LaterVersion(", ".join(sorted(unknown))[:200])
        return request


def parse(line: bytes) -> JSON:
    """Return the message of a line.

    Raises:
        ConnectionEnded: it is none.
    """
    try:
        message = decode(line)
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
        # Not orjson: it would turn an integer beyond 64 bits into a float.
        return from_json(line)
    except ValueError:
        # Half a surrogate pair, which pydantic refuses.
        return json.loads(line)


def encode_picture(about: Mapping[str, Any], jpeg: bytes) -> bytes:
    """Return the message to a viewer of a page: its length, the length of its description, the description as JSON, and a
    JPEG or nothing.
    """
    description = json.dumps(about).encode()
    length = LENGTH.size + len(description) + len(jpeg)
    return b"".join((LENGTH.pack(length), LENGTH.pack(len(description)), description, jpeg))


def has_picture(message: bytes) -> bool:
    """Whether a message of encode_picture() has a JPEG."""
    (length,) = LENGTH.unpack_from(message, LENGTH.size)
    return len(message) > 2 * LENGTH.size + length


def error_message(error: MCPError) -> JSON:
    """Return a JSON-RPC error as the member of a message."""
    return {"error": error.error.model_dump(mode="json")}


def raise_error(error: JSON) -> None:
    """Raises the MCPError that error_message() wrote."""
    raise MCPError(error["code"], error["message"], error.get("data"))
