"""The listening socket of the HTTP server: its own, or one that systemd opened for it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final

from ..config.model import Config, ConfigError
from ..systemd import WrongSocket, inherited_listener
from .port_holder import holder_of

BACKLOG: Final = 2048
"""Connections that may wait to be accepted."""


@contextmanager
def listen(config: Config) -> Generator[socket.socket]:
    """Yield the listening socket, which is closed at the end: that of systemd if there is one, else a new one.

    Raises:
        ConfigError: the address cannot be listened on, or the socket of systemd is not the configured one.
    """
    try:
        listener = inherited_listener()
    except WrongSocket as error:
        raise ConfigError(f"{error}; give the unit one ListenStream=ADDRESS:PORT") from None
    if listener is None:
        listener = _open(config)
    with listener:
        _check_exposure(listener, config)
        yield listener


def _open(config: Config) -> socket.socket:
    host, port = config.server.host.strip("[]"), config.server.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        holder = holder_of(host, port) if error.errno == errno.EADDRINUSE else None
        raise ConfigError(
            f"cannot listen on {host} port {port}: {holder or error.strerror or error}; choose another with "
            "--port (0: any free one) or --host"
        ) from None


def _check_exposure(listener: socket.socket, config: Config) -> None:
    """Refuse a socket of systemd that others can reach where the configuration is for this machine alone.

    Raises:
        ConfigError: it is such a socket.
    """
    host = listener.getsockname()[0]
    if config.server.loopback and not ip_address(host).is_loopback:
        raise ConfigError(
            f'systemd listens on {host}, and server.host is {config.server.host}; give server.host = "{host}" with '
            "server.tokens, or a ListenStream on 127.0.0.1"
        )


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, without a path."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


__all__ = ["BACKLOG", "listen", "url_of"]
