"""The console of a process that serves: the package `console` has it, and the command that starts the process chooses it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from starlette.routing import BaseRoute

from ...access.verifier import Verifier
from ..gateway.gateway import Gateway
from ..sockets.local_socket import Handler

VERB = "console"
"""The verb of the local socket by which a command asks for the address of the console."""


class ConsoleAddressPort(AbstractAsyncContextManager[object, bool | None], Protocol):
    """The address of a console. `async with` bounds the life of a port that it opens."""

    @property
    def handler(self) -> Handler:
        """The handler of the verb `console`."""
        ...


class ProcessConsole(Protocol):
    """The console over the gateway of a process. It lives as long as the process."""

    def routes(self) -> list[BaseRoute]:
        """Return the routes of its page and its API, for an application that checks Host and Origin."""
        ...

    def is_in_use(self) -> bool:
        """Whether a person has its page open."""
        ...

    def port(self, listener: socket.socket | None = None) -> ConsoleAddressPort:
        """Return its address: at `listener`, which serves the routes, or at a port that it opens when it is asked for."""
        ...


CreateConsole: TypeAlias = Callable[[Gateway, Verifier | None], ProcessConsole]
