"""uvicorn's HTTP protocol for connections of nodes: silent towards strangers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from uvicorn import Config
from uvicorn.server import ServerState

from .owner import OtherEnd

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol

_SILENT = logging.getLogger("statehold.silent")
_SILENT.setLevel(logging.CRITICAL + 1)
"""uvicorn would log each malformed request, which any program can send; owner.py logs the failures of requests."""


class NodeProtocol(HttpProtocol):
    """One connection. `other_end` is told of its bytes until it has admitted it as a node."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        other_end: OtherEnd,
    ) -> None:
        super().__init__(config, server_state, {"other_end": other_end})
        self.logger = _SILENT
        self._other_end = other_end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._other_end.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._other_end.leave()

    def data_received(self, data: bytes) -> None:
        if self._other_end.accepts(len(data)):
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        self._other_end.refuse("the last one sent no HTTP request")
