"""A buffer for outgoing HTTP events. Adjacent pieces of a body are sent as one."""

from __future__ import annotations

import h11


class SendBuffer:
    """Collects events for one side until take(). A body that a site sends byte by byte is passed on in larger pieces."""

    def __init__(self, http: h11.Connection) -> None:
        self._http = http
        self._framed: list[bytes] = []
        self._body: list[bytes] = []

    def add(self, event: h11.Event) -> None:
        if isinstance(event, h11.Data):
            self._body.append(event.data)
            return
        self._frame()
        self._framed.append(self._http.send(event) or b"")

    def take(self) -> bytes:
        """Return the bytes of the events added since the last call."""
        self._frame()
        data = b"".join(self._framed)
        self._framed.clear()
        return data

    def _frame(self) -> None:
        if self._body:
            self._framed.append(self._http.send(h11.Data(b"".join(self._body))) or b"")
            self._body.clear()


__all__ = ["SendBuffer"]
