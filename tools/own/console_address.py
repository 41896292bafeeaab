"""The address of the web console, for the results of tools that send a person there."""

from __future__ import annotations

from urllib.parse import quote


class ConsoleAddress:
    """The address at which people open the console of this process, as far as it is known. It grants nothing.

    The server sets it when the port of the console opens. An address that was configured, `public_url`, does not change.
    """

    def __init__(self, public_url: str | None = None) -> None:
        self._public_url = public_url
        self._local_url: str | None = None

    def serve_at(self, url: str | None) -> None:
        """Remember the address of the console without a path; None while no port is open."""
        self._local_url = url or self._local_url

    def of_session(self, session_id: str) -> str | None:
        """Return the address of a session in the console, None if the console has no address yet."""
        url = self._public_url or self._local_url
        return None if url is None else f"{url}/console#/s/{quote(session_id, safe='')}"
