"""TCP between nodes: the addresses of peer ports, and the options of their connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

IDLE_SECONDS, PROBE_SECONDS, PROBES = 5, 2, 3
"""A connection fails if the other machine is silent for 5 seconds and does not answer three probes."""
BUFFER_BYTES: Final = 1 << 20
BACKLOG: Final = 256


class AddressRefused(OSError):
    """Raised when an address is not in the networks of the cluster, so that no connection is made."""


def split_address(text: str) -> tuple[str, int | None]:
    """Return host and port of `HOST`, `HOST:PORT` or `[IPV6]:PORT`; None for no port.

    Raises:
        ValueError: the port is none.
    """
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, ""
    if port and not (port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"{port:.20} is no port; correct it")
    return host, int(port) if port else None


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    family, _, _, _, address = (await _resolve(host, port))[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def connect(peer: str, admits: Callable[[str], bool]) -> socket.socket:
    """Return a connection to `HOST:PORT`.

    Raises:
        AddressRefused: `admits` is false for its addresses.
        OSError: no connection can be made.
    """
    try:
        host, port = split_address(peer)
    except ValueError as error:
        raise AddressRefused(str(error)) from None
    found = await _resolve(host, port or 0)
    # The addresses that were checked are those connected to, whatever the name stands for a moment later.
    allowed = [entry for entry in found if admits(str(entry[4][0]))]
    failure: OSError | None = None
    for family, _, _, _, address in allowed:
        try:
            return await _connect(family, address)
        except OSError as error:
            failure = error
    raise failure or AddressRefused("the address of the node is not in cluster.networks")


async def _connect(family: int, address: tuple[str, int]) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        set_options(connection)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def _resolve(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(*entry[:4], (entry[4][0], entry[4][1])) for entry in found]


def set_options(connection: socket.socket) -> None:
    """Let messages leave at once, and let the loss of the other machine end the connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": IDLE_SECONDS,
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": PROBES,
    }
    for name, value in options.items():
        # macOS has other names, and two hours.
        with suppress(AttributeError, OSError):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def route_address(host: str, port: int) -> str:
    """Return the address of this machine on the way to another one. Nothing is sent.

    Raises:
        OSError: there is no way.
    """
    family, _, _, _, address = (await _resolve(host, port))[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        # This sets the addresses of the socket only.
        probe.connect(address)
        return str(probe.getsockname()[0])
