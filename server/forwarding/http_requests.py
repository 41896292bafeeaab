"""HTTP requests of legacy clients, forwarded to the node that holds their transport session.

Such a request is a forwarded request with the method HTTP_METHOD and an HttpRequest as its parameters. The owner answers in
parts: each is a notification with the method HTTP_METHOD, and the last one the result. The first part has the status and
the headers of the response, each part a piece of its body. A response that is sent as a whole has one part.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from starlette.types import Message, Scope

from ...sessions.json_codec import JSON

HTTP_METHOD: Final = "statehold/http"
_HEADERS: Final = frozenset((b"accept", b"content-type", b"last-event-id"))
"""The headers that travel, besides those of MCP. Never one with a credential."""
_MCP_HEADERS: Final = b"mcp-"

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request. Its body need not be valid UTF-8: other bytes are escaped as half a surrogate pair."""

    method: str
    path: str
    query: str
    headers: list[list[str]]
    body: str

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> HttpRequest:
        headers = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in scope["headers"]
            if name in _HEADERS or name.startswith(_MCP_HEADERS)
        ]
        query: bytes = scope["query_string"]
        return cls(scope["method"], scope["path"], query.decode("latin-1"), headers, _text(body))

    def to_params(self) -> JSON:
        return asdict(self)

    @classmethod
    def parse(cls, params: JSON | None) -> HttpRequest:
        """Read the parameters of a forwarded request.

        Raises:
            ValueError: they are not those of an HTTP request.
        """
        try:
            return cls(**cast("dict[str, Any]", params))
        except TypeError as error:
            raise ValueError(str(error)) from None

    def scope(self) -> Scope:
        """Return the ASGI scope of the request, without its caller."""
        headers = [*self.headers, ["content-length", str(len(self.body_bytes()))]]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode("latin-1"),
            "root_path": "",
            "headers": decode_headers(headers),
            "client": None,
            "server": None,
        }

    def body_bytes(self) -> bytes:
        return _bytes(self.body)


def encode_part(start: Message | None, body: bytes) -> JSON:
    """Return a part of a response: its `http.response.start` if that was not sent yet, and a piece of its body."""
    if start is None:
        return {"body": _text(body)}
    headers: Headers = start.get("headers", [])
    texts = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
    return {"status": start["status"], "headers": texts, "body": _text(body)}


def decode_part(part: JSON, *, is_last: bool) -> list[Message]:
    """Return the ASGI messages of a part."""
    messages: list[Message] = []
    if "status" in part:
        headers = decode_headers(part["headers"])
        start = {"type": "http.response.start", "status": part["status"], "headers": headers}
        messages.append(start)
    body = _bytes(part["body"])
    if body or is_last:
        messages.append({"type": "http.response.body", "body": body, "more_body": not is_last})
    return messages


def decode_headers(headers: list[list[str]]) -> Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _text(body: bytes) -> str:
    return body.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


__all__ = ["HTTP_METHOD", "HttpRequest", "decode_part", "encode_part"]
