"""The address of the web console, for the results of tools that send a person there."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

CONSOLE_COMMAND: Final = "statehold console"


class ConsoleAddress:
    """The address at which people open the console of this process, as far as it is known. It grants nothing.

    The server sets it when the port of the console opens. An address that was configured, `public_url`, does not change.
    """

    def __init__(self, public_url: str | None = None) -> None:
        self._public_url = public_url
        self._local_url: str | None = None
        self.is_served = public_url is not None
        """Whether CONSOLE_COMMAND opens the console of this process; the port may open only then."""

    def serve_at(self, url: str | None) -> None:
        """Note that the console is served; `url` is its address without a path, None while no port is open."""
        self.is_served = True
        self._local_url = url or self._local_url

    def of_session(self, session_id: str) -> str | None:
        """Return the address of a session in the console, None if the console has no address yet."""
        url = self._public_url or self._local_url
        return None if url is None else f"{url}/console#/s/{quote(session_id, safe='')}"
