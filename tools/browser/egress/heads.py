"""The heads of requests: read within bounds, parsed by h11, and refused where two parsers could read them differently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import SocketStream

from .lines import BROKEN
from .policy import Target
from .refusal import Refused, malformed

HEAD_BYTES: Final = 64 * 2**10
RESPONSE_HEAD_BYTES: Final = 256 * 2**10
"""The limit of browsers themselves."""

# Parsers differ on continued lines, and on lines that do not end in CRLF.
_AMBIGUOUS: Final = re.compile(rb"\r\n[ \t]|(?<!\r)\n|\r(?!\n)|\0")

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request, with the parts of it that are passed on."""

    method: bytes
    target: Target
    path: bytes
    headers: Headers
    """The headers that are meant for the site, after a Host header of our own."""
    chunked: bool
    has_body: bool

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again if a kept connection turns out to have ended."""
        return not self.has_body and self.method in (b"GET", b"HEAD", b"OPTIONS")


async def next_head(
    stream: SocketStream, buffer: bytearray, *, idle_seconds: float, seconds: float
) -> bool:
    """Read until `buffer` begins with a whole head. Return False if the browser sends no further request.

    Raises:
        Refused: The head is too long, too slow or ambiguous.
    """
    if not buffer and not await _more(stream, buffer, idle_seconds):
        return False
    deadline = anyio.current_time() + seconds
    searched = 0
    while True:
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
        end = buffer.find(b"\r\n\r\n", max(0, searched - 3))
        searched = len(buffer)
        if (searched if end < 0 else end) > HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise Refused(status, f"the head of the request is larger than {HEAD_BYTES} bytes")
        if end >= 0:
            if _AMBIGUOUS.search(buffer, 0, end + 4):
                raise malformed("the head of the request has a line that does not end in CRLF")
            return True
        left = deadline - anyio.current_time()
        if left <= 0 or not await _more(stream, buffer, left):
            if anyio.current_time() < deadline:
                return False
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the head of the request took too long")


async def _more(stream: SocketStream, buffer: bytearray, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        try:
            buffer += await stream.receive()
        except BROKEN:
            return False
        return True
    return False


def understood(request: h11.Request) -> Incoming:
    """Return a parsed request with its target and the headers to pass on.

    Raises:
        Refused: The request contradicts itself, or is no request to a proxy.
    """
    chunked, has_body = _framing(request)
    if request.method == b"CONNECT":
        if has_body:
            raise malformed("a CONNECT request has a body")
        target, path = _authority(request.target, tunnel=True), b""
    else:
        target, path = _absolute(request.target)
    hosts = [value for name, value in request.headers if name == b"host"]
    if any(not _agrees(host, target) for host in hosts):
        raise malformed("the Host header names another host than the request")
    headers = [(b"Host", target.authority.encode()), *end_to_end(request.headers.raw_items())]
    return Incoming(request.method, target, path, headers, chunked, has_body)


def _framing(request: h11.Request) -> tuple[bool, bool]:
    lengths = [value for name, value in request.headers if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    if chunked and (lengths or request.http_version != b"1.1"):
        raise malformed("the request says in two ways where its body ends")
    if request.http_version not in (b"1.0", b"1.1"):
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the version of HTTP is not 1.1")
    return chunked, chunked or any(int(length) for length in lengths)


def _absolute(target: bytes) -> tuple[Target, bytes]:
    scheme, slashes, rest = target.partition(b"://")
    if not slashes or scheme.lower() != b"http":
        raise malformed("this is a proxy: it takes http:// addresses and CONNECT")
    found = re.fullmatch(rb"([^/?#]*)([/?]?[^#]*)(?:#.*)?", rest)
    if found is None:
        raise malformed("the address of the request cannot be read")
    path = found[2] if found[2].startswith(b"/") else b"/" + found[2]
    return _authority(found[1], tunnel=False), path


def _authority(authority: bytes, *, tunnel: bool) -> Target:
    found = re.fullmatch(rb"(\[[0-9a-fA-F:.]+\]|[^:@\[\]]+)(?::([0-9]{1,5})?)?", authority)
    if found is None or (tunnel and not found[2]):
        raise malformed("the request names no host and port")
    try:
        port = int(found[2]) if found[2] else 80
        return Target.of(found[1].decode("ascii"), port, tunnel=tunnel)
    except ValueError:
        raise malformed("the request names no host that can exist") from None


def _agrees(host: bytes, target: Target) -> bool:
    try:
        parts = urlsplit(f"//{host.decode('ascii')}")
        # A CONNECT request may leave the port out: RFC 9110 lets Host be what the URL said.
        port = parts.port or (target.port if target.tunnel else 80)
        named = Target.of(parts.hostname or "", port, tunnel=target.tunnel)
    except ValueError:
        return False
    return named == target and parts.netloc == host.decode() and "@" not in parts.netloc


def end_to_end(items: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are meant for the other end, without Host and without those that Connection names."""
    known = [(name, name.lower(), value) for name, value in items]
    left_out = set(_HOP_BY_HOP) | {b"host"}
    for _, name, value in known:
        if name == b"connection":
            left_out.update(one.strip().lower() for one in value.split(b","))
    # A Connection header must not remove the length of the message.
    left_out.discard(b"content-length")
    return [(name, value) for name, lower, value in known if lower not in left_out]


__all__ = [
    "HEAD_BYTES",
    "RESPONSE_HEAD_BYTES",
    "Headers",
    "Incoming",
    "end_to_end",
    "next_head",
    "understood",
]
