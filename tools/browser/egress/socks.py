"""The server's side of a SOCKS5 handshake (RFC 1928): no authentication, and the command CONNECT alone."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import ip_address
from typing import Final

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from .network_policy import Target

_VERSION: Final = 5
_NO_AUTHENTICATION: Final = 0
_NO_METHOD: Final = 0xFF
_CONNECT: Final = 1
_IPV4: Final = 1
_NAME: Final = 3
_IPV6: Final = 4


class SocksReply(IntEnum):
    """The replies of RFC 1928 that this proxy gives. Chromium tells HOST_UNREACHABLE apart from the others."""

    SUCCEEDED = 0
    FAILED = 1
    NOT_ALLOWED = 2
    HOST_UNREACHABLE = 4
    COMMAND_NOT_SUPPORTED = 7
    ADDRESS_NOT_SUPPORTED = 8


class Malformed(Exception):
    """Raised for a handshake that is none, or that asks for more than CONNECT."""


async def read_request(stream: SocketStream) -> tuple[Target, bytes]:
    """Read a handshake up to its request. Return the target, and the bytes that followed already.

    Answer it with send_reply(). Names are resolved by the caller, so the client must send them as names.

    Raises:
        Malformed: It was refused; close the connection.
    """
    reader = BufferedByteReceiveStream(stream)
    try:
        version, count = await reader.receive_exactly(2)
        methods = await reader.receive_exactly(count)
        if version != _VERSION or _NO_AUTHENTICATION not in methods:
            await stream.send(bytes((_VERSION, _NO_METHOD)))
            raise Malformed("no SOCKS5 without authentication")
        await stream.send(bytes((_VERSION, _NO_AUTHENTICATION)))
        version, command, _, kind = await reader.receive_exactly(4)
        if version != _VERSION or command != _CONNECT:
            await send_reply(stream, SocksReply.COMMAND_NOT_SUPPORTED)
            raise Malformed("no CONNECT")
        host = await _read_host(reader, kind)
        port = int.from_bytes(await reader.receive_exactly(2))
        target = Target.of(host, port)
    except ValueError:
        await send_reply(stream, SocksReply.ADDRESS_NOT_SUPPORTED)
        raise Malformed("no host that can exist") from None
    except anyio.IncompleteRead:
        raise Malformed("an incomplete handshake") from None
    return target, bytes(reader.buffer)


async def _read_host(reader: BufferedByteReceiveStream, kind: int) -> str:
    """Read the address of a request.

    Raises:
        ValueError: It is of an unknown kind, or not in ASCII.
    """
    if kind == _NAME:
        (length,) = await reader.receive_exactly(1)
        return (await reader.receive_exactly(length)).decode("ascii")
    if kind not in (_IPV4, _IPV6):
        raise ValueError("no kind of an address")
    return str(ip_address(await reader.receive_exactly(4 if kind == _IPV4 else 16)))


async def send_reply(stream: SocketStream, reply: SocksReply) -> None:
    """Answer a request. The address in the reply is 0.0.0.0:0: clients of CONNECT have no use for it."""
    await stream.send(bytes((_VERSION, reply, 0, _IPV4)) + bytes(6))
