"""The hosts that the egress proxy of a session did not reach, with the reasons."""

from __future__ import annotations

from typing import Final

from ....sessions.owned_map import BoundedMap
from ..egress.network_policy import Target
from .tab import TabEvents

MAX_HOSTS: Final = 50
"""The most hosts of which the reasons are kept."""
PROXY_FAILURE: Final = "net::ERR_SOCKS_"
"""The beginning of a browser's error for a connection that the proxy did not open."""


class HostErrors:
    """The messages about unreached hosts of one session. Lives as long as its context."""

    def __init__(self) -> None:
        self.events = TabEvents()
        """The lines for the next result."""
        self._pending: dict[str, str] = {}
        """The message for each host since clear(); take() removes it."""
        self._latest = BoundedMap[str, str](MAX_HOSTS)
        """The last message about each host."""

    def note(self, host: str, line: str) -> None:
        """Note that a host was not reached, with the message about it."""
        self._latest[host] = line
        if len(self._pending) < MAX_HOSTS:
            self._pending[host] = line
        if line not in self.events and len(self.events) < MAX_HOSTS:
            self.events.append(line)

    def clear(self) -> None:
        """Forget the messages that take() would return."""
        self._pending.clear()

    def take(self, url: str) -> str:
        """Return and remove the message about the unreached host of an address; "" if it was reached."""
        try:
            line = self._pending.pop(str(Target.of_url(url)), "")
        except ValueError:
            return ""
        if line in self.events:
            self.events.remove(line)
        return line

    def take_events(self) -> TabEvents:
        """Return the lines since the last call."""
        events, self.events = self.events, TabEvents()
        return events

    def explain(self, url: str, failure: str) -> str:
        """Return why a request failed: the reason of our proxy instead of its error code, if it opened no connection."""
        if not failure.startswith(PROXY_FAILURE):
            return failure
        try:
            return self._latest.get(str(Target.of_url(url)), failure)
        except ValueError:
            return failure
