"""The listening sockets of the HTTP server: its own, or one that systemd opened for it."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import Any, Final

from ...access.config.types import ConfigError
from ..config.model import Config
from ..sockets.systemd import WrongSocket, inherited_listener

SECONDS: Final = 2.0
"""Seconds to wait for the answer."""
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

BACKLOG: Final = 2048
"""Connections that may wait to be accepted."""


def holder_of(host: str, port: int) -> str | None:
    """Return a sentence about the Statehold that listens on a port, None if another program listens."""
    address = _ANY.get(host, host)
    connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
    try:
        connection.request("GET", "/livez")
        liveness: Any = json.loads(connection.getresponse().read(1000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if not isinstance(liveness, dict) or liveness.get("server") != "statehold":  # pyright: ignore[reportUnknownMemberType]
        return None
    pid: Any = liveness.get("pid")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"another Statehold (pid {pid}) listens there" if isinstance(pid, int) else None


@contextmanager
def listen(config: Config) -> Generator[tuple[socket.socket, bool]]:
    """Yield the listening socket, which is closed at the end: that of systemd if there is one, else a new one.

    Also yield whether it is systemd's, which holds it open for the next process.

    Raises:
        ConfigError: the address cannot be listened on, or the socket of systemd is not the configured one.
    """
    try:
        listener = inherited_listener()
    except WrongSocket as error:
        raise ConfigError(f"{error}; give the unit one ListenStream=ADDRESS:PORT") from None
    is_held = listener is not None
    if listener is None:
        listener = _open(config, config.server.port)
    with listener:
        _check_exposure(listener, config)
        yield listener, is_held


@contextmanager
def listen_together(config: Config) -> Generator[list[socket.socket]]:
    """Yield a listening socket for each worker, all on one port. They are closed at the end.

    Raises:
        ConfigError: the address cannot be listened on, or this system has no such sockets.
    """
    if sys.platform != "linux":
        raise ConfigError("server.workers: only Linux spreads connections over workers; give 1")
    if _is_activated():
        raise ConfigError(
            "server.workers: systemd passes one socket, and each worker needs its own; disable the socket unit"
        )
    with ExitStack() as stack:
        # A socket that shares its port would also share that of another Statehold.
        with _open(config, config.server.port) as first:
            port = first.getsockname()[1]
        yield [
            stack.enter_context(_open(config, port, shares_port=True))
            for _ in range(config.server.workers)
        ]


def _is_activated() -> bool:
    try:
        listener = inherited_listener()
    except WrongSocket:
        return True
    if listener is not None:
        listener.close()
    return listener is not None


def _open(config: Config, port: int, *, shares_port: bool = False) -> socket.socket:
    host = config.server.host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, reuse_port=shares_port
        )
    except OSError as error:
        holder = holder_of(host, port) if error.errno == errno.EADDRINUSE else None
        raise ConfigError(
            f"cannot listen on {host} port {port}: {holder or error.strerror or error}; choose another with "
            "--port (0: any free one) or --host"
        ) from None
    # Accepted connections inherit it. uvloop sets it itself, asyncio not for a socket without a protocol number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _check_exposure(listener: socket.socket, config: Config) -> None:
    """Refuse a socket of systemd that others can reach where the configuration is for this machine alone.

    Raises:
        ConfigError: it is such a socket.
    """
    host = listener.getsockname()[0]
    if config.server.loopback and not ip_address(host).is_loopback:
        raise ConfigError(
            f'systemd listens on {host}, and server.host is {config.server.host}; give server.host = "{host}" with '
            "server.tokens or auth.issuers, and server.tls, or a ListenStream on 127.0.0.1"
        )


def url_of(listener: socket.socket, scheme: str) -> str:
    """Return the URL of a listening socket, without a path."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
