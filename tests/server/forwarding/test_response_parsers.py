"""Both parsers of the responses of other nodes: httptools, and h11 for interpreters without it."""

from __future__ import annotations

from typing import Any

import pytest

from statehold.server.cluster.response_parser import H11Parser, Parser, new_parser

STREAM = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-type: text/plain\r\n\r\nabc"
    b"HTTP/1.1 204 No Content\r\nstatehold-proof: x\r\n\r\n"
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n3\r\nfgh\r\n0\r\n\r\n"
    b"HTTP/1.1 421 Misdirected Request\r\ncontent-length: 0\r\n\r\n"
)


class Reader:
    def __init__(self, parser: Any) -> None:
        self.parser: Parser = parser(self)
        self.read: list[object] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        self.read.append((status, self._headers))
        self._headers = []

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self.read[-1] != (100, []):
            self.read.append(self._body)
            self._body = b""


@pytest.mark.parametrize("parser", [new_parser, H11Parser])
@pytest.mark.parametrize("size", [1, 7, len(STREAM)])
def test_responses_are_read_in_pieces_of_any_size(parser: Any, size: int) -> None:
    reader = Reader(parser)
    for start in range(0, len(STREAM), size):
        reader.parser.feed_data(STREAM[start : start + size])
    assert reader.read == [
        (100, []),
        (200, [(b"content-length", b"3"), (b"content-type", b"text/plain")]),
        b"abc",
        (204, [(b"statehold-proof", b"x")]),
        b"",
        (100, []),
        (200, [(b"transfer-encoding", b"chunked")]),
        b"defgh",
        (421, [(b"content-length", b"0")]),
        b"",
    ]


@pytest.mark.parametrize("parser", [new_parser, H11Parser])
def test_other_bytes_are_an_error(parser: Any) -> None:
    with pytest.raises(Exception, match=r".+"):
        Reader(parser).parser.feed_data(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
