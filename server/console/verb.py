"""The verb `console` of the local socket: a one-time code, in the address at which a browser uses it."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import closing

from ...sessions.errors import SessionError, StoreUnavailable
from ...sessions.json_codec import JSON
from ..sockets.local_socket import send_content, send_error
from .logins import CODE_SECONDS, Logins

VERB = "console"


class ConsoleVerb:
    """The handler of the verb. `url` opens the port of the console if necessary, and returns its address."""

    def __init__(self, logins: Logins, url: Callable[[], Awaitable[str]]) -> None:
        self._logins = logins
        self._url = url

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                url, code = await self._url(), await self._logins.mint_code()
            except SessionError as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            except StoreUnavailable as error:
                await send_error(connection, "store_unavailable", str(error), "Try again later.")
                return
            # The code is in the fragment, which browsers do not send, so no log has it.
            address = f"{url}/console#code={code}"
            await send_content(connection, {"url": address, "seconds": CODE_SECONDS})


__all__ = ["VERB", "ConsoleVerb"]
