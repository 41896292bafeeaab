"""Parsers of HTTP responses: httptools, or h11 where there is no httptools."""

from __future__ import annotations

from typing import Any, Protocol


class Responses(Protocol):
    """Gets the parts of responses from a parser."""

    def on_header(self, name: bytes, value: bytes) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None: ...


class Parser(Protocol):
    def feed_data(self, data: bytes) -> None:
        """Parse bytes and pass on what they complete. Raises an error of its own if they are no responses."""
        ...

    def get_status_code(self) -> int: ...


def new_parser(responses: Responses) -> Parser:
    """Return a parser of the responses on one connection to requests that are no HEAD."""
    try:
        from httptools import HttpResponseParser
    except ImportError:
        return H11Parser(responses)
    parser: Any = HttpResponseParser(responses)
    return parser


class H11Parser:
    """h11 with the interface of httptools."""

    def __init__(self, responses: Responses) -> None:
        import h11

        self._h11: Any = h11
        self._responses = responses
        self._status = 0
        self._begin()

    def _begin(self) -> None:
        self._connection = self._h11.Connection(self._h11.CLIENT)
        # h11 wants to see the request that it reads the response to.
        request = self._h11.Request(method="POST", target="/", headers=[("host", "node")])
        self._connection.send(request)
        self._connection.send(self._h11.EndOfMessage())

    def get_status_code(self) -> int:
        return self._status

    def feed_data(self, data: bytes) -> None:
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if event is self._h11.NEED_DATA or event is self._h11.PAUSED:
                return
            if isinstance(event, self._h11.Data):
                self._responses.on_body(bytes(event.data))
            elif isinstance(event, self._h11.EndOfMessage):
                rest, _ = self._connection.trailing_data
                self._responses.on_message_complete()
                self._begin()
                if rest:
                    self._connection.receive_data(rest)
            else:
                self._status = event.status_code
                for name, value in event.headers:
                    self._responses.on_header(bytes(name), bytes(value))
                self._responses.on_headers_complete()
